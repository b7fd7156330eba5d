"""Compiled modules; everything else about the package is in setup.cfg."""

import os
import sys

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = [
    "_loop",
    "_rows",
    "_losses",
    "_tables",
    "_samplers",
    "_level_sampler",
    "_steps",
    "_coordinate_rates",
    "_linear",
    "_dual",
    "_kinks",
    "_multipliers",
    "_softmax",
    "_softmax_batch",
    "_batch",
    "_newton",
    "_models",
    "_columns",
    "_stream",
    "_stream_dual",
    "_softmax_dual",
    "_cells",
    "_entries",
    "_entry_samplers",
    "_product_sampler",
    "_two_way_sampler",
    "_factorization",
    "_observed",
    "_episodes",
    "_policy",
    "_trajectory_sampler",
]
# What Cython writes for memoryviews, once instead of in every module: two thirds of the
# time that compiling takes.
SHARED = "sklearn_awsgd._kernels._cyutility"
# Loops with sqrt are only vectorised when it need not set errno, loops that choose from
# two values when nobody waits for floating point traps. Without fused products the
# results do not depend on the processor.
FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
if "-g" not in os.environ.get("CFLAGS", "").split():
    # Python's own flags ask for debug symbols: a quarter of the compiler's time.
    FLAGS.append("-g0")
if os.name == "nt":
    FLAGS = []

# Processes for Cython, where they can be forked, and for the compiler.
N_JOBS = os.cpu_count() or 1

extensions = [
    Extension(
        f"sklearn_awsgd._kernels.{name}",
        [f"sklearn_awsgd/_kernels/{name}.pyx"],
        include_dirs=[np.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        extra_compile_args=FLAGS,
    )
    for name in KERNELS
]
extensions.append(
    Extension(SHARED, [f"{SHARED.replace('.', '/')}.c"], extra_compile_args=FLAGS)
)
setup(
    ext_modules=cythonize(
        extensions,
        # What changes belongs to objects of one fit: modules have constants only.
        compiler_directives={"freethreading_compatible": True},
        nthreads=N_JOBS if sys.platform == "linux" else 0,
        shared_utility_qualified_name=SHARED,
    ),
    options={"build_ext": {"parallel": N_JOBS}},
)
