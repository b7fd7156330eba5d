"""Models survive: a killed process goes on bit by bit, and so do saved models."""

import pickle
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import save_models
import stream
from sklearn.base import clone

from sklearn_awsgd import AWSGDClassifier, __version__, _persistence
from sklearn_awsgd.samplers import StrataSampler

TOOLS = Path(__file__).parent / "tools"
N_CHUNKS = 6
SAVED = sorted((Path(__file__).parent / "models").glob("*.pkl"))


def learned(model):
    """Return what a model has learned, as arrays by name."""
    names = (
        "coef_ intercept_ t_ duality_gap_ components_ column_probabilities_ "
        "estimate_ std_error_ confidence_interval_ n_evaluations_"
    ).split()
    found = {
        name: np.asarray(getattr(model, name)) for name in names if hasattr(model, name)
    }
    tables = [model.history_, getattr(model, "sampling_history_", {})]
    for table in tables:
        found |= {
            f"{name} over time": column
            for name, column in table.items()
            if name != "seconds" and column.dtype != object
        }
    assert found
    return found


def assert_alike(one, other):
    """All models of two dicts have learned the same, bit by bit."""
    for name in one:
        first, second = learned(one[name]), learned(other[name])
        assert first.keys() == second.keys()
        for key in first:
            np.testing.assert_array_equal(first[key], second[key], err_msg=name + key)


def uninterrupted(n_chunks):
    models = stream.fresh()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for t in range(n_chunks):
            stream.learn(models, t)
    return models


def run_until(folder, word, delay):
    """Run the process until it says a word; kill it after a delay."""
    command = [sys.executable, str(TOOLS / "stream.py"), str(folder), str(N_CHUNKS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.strip() == word:
                time.sleep(delay)
                process.kill()
        return process.wait()


def test_killed_and_resumed(tmp_path):
    # While it learns, while it writes, between two chunks, and then to the end.
    for word, delay in (("learn 1", 0.01), ("dump 2", 0.0), ("done 3", 0.0)):
        assert run_until(tmp_path, word, delay) == -9
        done, _ = stream.load(tmp_path)
        assert 0 < done < N_CHUNKS
    assert run_until(tmp_path, "never", 0) == 0
    done, models = stream.load(tmp_path)
    assert done == N_CHUNKS
    assert_alike(models, uninterrupted(N_CHUNKS))


@pytest.mark.parametrize("name", stream.fresh())
def test_a_failed_call_changes_nothing(name):
    """A chunk that is refused leaves a model from which the stream goes on."""
    models = uninterrupted(1)
    model = models[name]
    before = pickle.dumps(model)
    data = (np.zeros((4, stream.COLUMNS + 1)), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(*data[: 1 if name == "factorization" else 2])
    assert_alike({name: model}, {name: pickle.loads(before)})


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_saved_models(path):
    """Models of every release load and go on, or are refused with a reason."""
    content = pickle.loads(path.read_bytes())
    if content["format"] != _persistence.FORMAT:
        assert path.stem != __version__
        for saved in content["models"].values():
            with pytest.raises(ValueError, match=f"sklearn_awsgd {path.stem}, in for"):
                pickle.loads(saved)
        return
    models = {name: pickle.loads(saved) for name, saved in content["models"].items()}
    for moment in ("before", "after"):
        for name, answer in save_models.answers(models).items():
            # Other processors and versions of NumPy may round differently.
            np.testing.assert_allclose(
                answer, content[moment][name], rtol=1e-6, atol=1e-9, err_msg=name
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stream.learn(models, save_models.N_CHUNKS)


def test_there_are_models_of_this_version():
    assert __version__ in [path.stem for path in SAVED]


def test_models_of_another_format_are_refused(monkeypatch):
    model = AWSGDClassifier().fit([[0.0], [1.0]], [0, 1])
    saved = [pickle.dumps(model, protocol=protocol) for protocol in range(2, 6)]
    for bytes_ in saved:
        assert pickle.loads(bytes_).coef_ == model.coef_
    monkeypatch.setattr(_persistence, "FORMAT", _persistence.FORMAT + 1)
    for bytes_ in saved:
        with pytest.raises(ValueError, match=r"AWSGDClassifier was saved by .*format"):
            pickle.loads(bytes_)


def test_the_format_is_read_before_the_state(monkeypatch):
    """Also when the state has classes that are no longer there."""
    model = AWSGDClassifier()
    model.gone = Gone()
    saved = pickle.dumps(model)
    monkeypatch.delattr(sys.modules[__name__], "Gone")
    with pytest.raises(AttributeError, match="Gone"):
        pickle.loads(saved)
    monkeypatch.setattr(_persistence, "FORMAT", _persistence.FORMAT + 1)
    with pytest.raises(ValueError, match="in format"):
        pickle.loads(saved)


class Gone:
    """A class that later versions do not have."""


def test_samplers_and_clones_are_what_they_were():
    sampler = StrataSampler(mixing=0.3)
    assert pickle.loads(pickle.dumps(sampler)).mixing == 0.3
    model = AWSGDClassifier(sampler=sampler)
    assert clone(model).sampler.mixing == 0.3
