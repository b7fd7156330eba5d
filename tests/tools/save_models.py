"""Save the models of this version, for later ones to load: once for each release.

    python tests/tools/save_models.py

Writes ``tests/models/<version>.pkl``: for each model its pickle, data, and what it
predicts, before and after one more chunk.
"""

import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
from stream import chunk, fresh, learn

import sklearn_awsgd
from sklearn_awsgd._persistence import FORMAT

FOLDER = Path(__file__).resolve().parents[1] / "models"
N_CHUNKS = 2


def answers(models):
    """Return what models say, as arrays."""
    X = chunk(100)[0][:20]
    given = {}
    for name, model in models.items():
        if hasattr(model, "predict"):
            given[name] = np.asarray(model.predict(X), dtype=float)
        else:
            given[name] = np.array([model.estimate_, *model.confidence_interval_])
    return given


def main():
    """Train and save; a version that has been saved stays as it is."""
    path = FOLDER / f"{sklearn_awsgd.__version__}.pkl"
    if path.exists() and "--again" not in sys.argv:
        raise SystemExit(f"{path} exists; --again replaces it before the release.")
    warnings.simplefilter("ignore")
    models = fresh()
    # Of the pool all rows would be saved with them.
    for name in ("importance", "paper"):
        del models[name]
    for t in range(N_CHUNKS):
        learn(models, t)
    saved = {name: pickle.dumps(model, protocol=4) for name, model in models.items()}
    before = answers(models)
    learn(models, N_CHUNKS)
    content = {"models": saved, "before": before, "after": answers(models)}
    content["format"] = FORMAT
    FOLDER.mkdir(exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=4))
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
