"""Saved models say which format they have, before anything else of them is read."""

import sys

# To be raised when attributes of fitted estimators change their names or meanings.
# `tests/models` has models of every release; those of an older format are refused.
FORMAT = 6


def new_instance(model_format, version, cls):
    """Return an instance without state, if the saved state can be read.

    It is what pickle calls first: the state comes afterwards, with classes in it that
    other versions may not have.

    Raises
    ------
    ValueError
        When the model was saved in another format.
    """
    if model_format != FORMAT:
        raise ValueError(
            f"This {cls.__name__} was saved by sklearn_awsgd {version}, in format "
            f"{model_format}; this version reads format {FORMAT}. Load it with "
            f"sklearn_awsgd=={version}, or fit it again."
        )
    return cls.__new__(cls)


def reduce_with_format(estimator, reduced):
    """Return what pickle needs of an estimator, its format first.

    Parameters
    ----------
    estimator : estimator
        What is pickled.
    reduced : tuple
        What ``object.__reduce_ex__`` returns for it.
    """
    version = sys.modules["sklearn_awsgd"].__version__
    return new_instance, (FORMAT, version, type(estimator)), *reduced[2:]
