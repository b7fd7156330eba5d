"""The type stubs are those of the code, and a type checker goes by them."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "doc" / "tools"))
stubs = importlib.import_module("stubs")

# Every comment "type: ignore" must be needed, so what has one is refused.
USE = """
from numpy.typing import NDArray
from sklearn_awsgd import AWSGDClassifier, AWSGDMatrixFactorization
from sklearn_awsgd.samplers import BaseSampler, LevelSampler

clf: AWSGDClassifier = AWSGDClassifier(
    penalty="l1", alpha=1e-3, forgetting="auto", random_state=0
).fit([[0.0], [1.0]], [0, 1], sample_weight=[1.0, 2.0])
gain: NDArray = clf.variance_gain_
sampler: BaseSampler = LevelSampler(mixing=0.2)
AWSGDClassifier(penalty="l3")  # type: ignore[arg-type]
AWSGDClassifier(max_iter=1.5)  # type: ignore[arg-type]
AWSGDClassifier(alfa=1.0)  # type: ignore[call-arg]
AWSGDMatrixFactorization(unstored="none")  # type: ignore[arg-type]
clf.fit([[0.0]])  # type: ignore[call-arg]
LevelSampler(0.2)  # type: ignore[call-arg]
"""


@pytest.mark.parametrize("module", list(stubs.FILES))
def test_stubs_are_those_of_the_code(module):
    written = (ROOT / stubs.FILES[module]).read_text()
    assert written == stubs.stub(module), "run `make stubs`"


def test_a_checker_refuses_what_the_code_refuses(tmp_path):
    pytest.importorskip("mypy")
    path = tmp_path / "use.py"
    path.write_text(USE)
    options = ["--warn-unused-ignores", "--ignore-missing-imports"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", tmp_path, path],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
