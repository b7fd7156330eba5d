"""Compiled modules; everything else about the package is in setup.cfg."""

import numpy as np
from setuptools import Extension, setup

KERNELS = ["_loop", "_rows", "_losses", "_samplers", "_linear"]

setup(
    ext_modules=[
        Extension(
            f"sklearn_awsgd._kernels.{name}",
            [f"sklearn_awsgd/_kernels/{name}.pyx"],
            include_dirs=[np.get_include()],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
            # sqrt in a loop is only vectorised when it need not set errno.
            extra_compile_args=["-O3", "-fno-math-errno"],
        )
        for name in KERNELS
    ]
)
