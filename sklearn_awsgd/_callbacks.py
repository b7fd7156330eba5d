"""Fits as scikit-learn's callbacks see them: tasks, and tasks inside of them.

scikit-learn has callbacks since version 1.9. Before, estimators have no
``set_callbacks``, and a fit tells nobody.
"""

from contextlib import contextmanager, nullcontext
from threading import Lock

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:
        """Nothing: this scikit-learn has no callbacks."""

    def with_callbacks(method):
        """Return the method as it is."""
        return method


class FitTask:
    """A part of a fit that callbacks are told of: a fit, a problem or a pass.

    Parameters
    ----------
    context : sklearn.callback.CallbackContext
        Of the task.
    arguments : dict
        What all hooks are called with: estimator, X, y and metadata.
    lock : threading.Lock
        Problems may be trained in threads; callbacks are called one at a time.
    """

    def __init__(self, context, arguments, lock):
        self._context, self._arguments, self._lock = context, arguments, lock
        self._n_begun = 0
        with lock:
            context.call_on_fit_task_begin(**arguments)

    def begin(self, name, max_subtasks=0, number=None):
        """Begin a task inside of this one.

        Parameters
        ----------
        name : str
            Of the task.
        max_subtasks : int or None, default=0
            Largest number of tasks inside of it, None if it is not known.
        number : int, default=None
            Number of the task where tasks are not in the order of time.

        Returns
        -------
        task : FitTask or NoTask
            The task. Nobody is told of more tasks than there may be.
        """
        most = self._context.max_subtasks
        if most is not None and self._n_begun >= most:
            return NoTask()
        self._n_begun += 1
        with self._lock:
            context = self._context.subcontext(
                task_name=name, task_id=number, max_subtasks=max_subtasks
            )
        return FitTask(context, self._arguments, self._lock)

    def end(self, attributes=None):
        """End the task; return whether a callback asks for no more tasks like it.

        Parameters
        ----------
        attributes : dict or callable that returns one, default=None
            What makes a copy of the estimator a fitted one, as if the fit were over.
        """
        with self._lock:
            return self._context.call_on_fit_task_end(
                **self._arguments, reconstruction_attributes=attributes
            )

    def passed_to(self, estimator):
        """Return a context inside of which an estimator is fitted as this task.

        Parameters
        ----------
        estimator : estimator
            Callbacks that are for parts of an estimator too are told of its fit.
        """
        return self._context.propagate_callback_context(estimator)


class NoTask:
    """A task that nobody is told of, with the methods of :class:`FitTask`."""

    def begin(self, name, max_subtasks=0, number=None):
        """Return a task that nobody is told of."""
        return self

    def end(self, attributes=None):
        """Return False: nobody asks for an end."""
        return False

    def passed_to(self, estimator):
        """Return a context that does nothing."""
        return nullcontext()


@contextmanager
def fit_with_callbacks(estimator, X, y=None, sample_weight=None, **settings):
    """Tell callbacks of a fit; give its FitTask to the body.

    The method around it has to be decorated with :func:`with_callbacks`.

    Parameters
    ----------
    estimator : estimator
        What is fitted.
    X, y, sample_weight : as given to ``fit``
        For the callbacks.
    **settings : dict
        `max_subtasks` and `sequential_subtasks` of the context.
    """
    if not estimator._has_callbacks:
        yield NoTask()
        return
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    arguments = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}
    context = estimator._init_callback_context(**settings)
    task = FitTask(context, arguments, Lock())
    yield task
    task.end({})
