"""Seeds and data shared by the tests.

The seed of every statistical test comes from the environment variable
``SKLEARN_AWSGD_TEST_SEED`` (default 0), so that the suite can be run on many seeds.
"""

import os
import sys
from pathlib import Path

# Before OpenMP is loaded: the threads of boosted trees wait for each other in a loop,
# and several tests at a time then take many times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

# Some tests are short forms of what `tests/tools` does at length.
sys.path.insert(0, str(Path(__file__).parent / "tools"))

SEED = int(os.environ.get("SKLEARN_AWSGD_TEST_SEED", "0"))

# The same examples in each run: a failure is a change of the code.
settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None, max_examples=60
)
settings.load_profile("suite")


@pytest.fixture
def seed():
    """Seed of the random streams."""
    return SEED


@pytest.fixture
def rng(seed):
    """Random numbers for the data of a test."""
    return np.random.default_rng(seed)


@pytest.fixture
def imbalanced(rng):
    """A noisy two-class problem with one positive row in ten."""
    X = rng.standard_normal((400, 5))
    score = X @ np.array([1.5, -1.0, 0.5, 0.0, 0.0]) + rng.logistic(size=400)
    return X, (score > np.quantile(score, 0.9)).astype(int)


@pytest.fixture
def three_classes(rng):
    """A problem with three classes of different sizes."""
    X = rng.standard_normal((300, 4))
    score = X @ rng.standard_normal((4, 3)) + rng.gumbel(size=(300, 3))
    return X, np.array(["a", "b", "c"])[np.add(score, [2.0, 1.0, 0.0]).argmax(axis=1)]
