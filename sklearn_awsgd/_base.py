"""What all estimators share: parameters, links to their pages, how they are saved."""

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._callbacks import CallbackSupportMixin
from sklearn_awsgd._fit_table import fit_html
from sklearn_awsgd._persistence import reduce_with_format


@cache
def documentation_url():
    """Return the address of the documentation in the package's metadata, or "".

    It is the entry "Documentation" of ``project_urls``. Without one there is no link: a
    link to a page that does not exist is worse than none.
    """
    try:
        urls = metadata("sklearn_awsgd").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    named = dict(url.partition(", ")[::2] for url in urls)
    return named.get("Documentation", "").rstrip("/")


def is_fitted(estimator):
    """Return whether an estimator is fitted."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


class EstimatorMixin(CallbackSupportMixin):
    """What all estimators of the package share.

    A subclass names its page of the documentation in `_doc_page`; there is a link to it
    where the documentation has an address. Saved models tell their format.
    """

    _doc_link_module = "sklearn_awsgd"
    # False skips all that is for callbacks: most fits have none.
    _has_callbacks = False

    if hasattr(CallbackSupportMixin, "set_callbacks"):

        def set_callbacks(self, *callbacks):
            """Set callbacks, as scikit-learn does.

            Parameters
            ----------
            *callbacks : callback instances
                What is told of each fit; nothing for none.

            Returns
            -------
            self : object
                The estimator.
            """
            super().set_callbacks(*callbacks)
            vars(self).pop("_has_callbacks", None)
            if callbacks:
                self._has_callbacks = True
            return self

    def __sklearn_clone__(self):
        other = super().__sklearn_clone__()
        if self._has_callbacks:
            other._has_callbacks = True
        return other

    @property
    def _doc_link_template(self):
        url = documentation_url()
        return f"{url}/{self._doc_page}.html" if url else ""

    @property
    def _repr_html_(self):
        # scikit-learn has a property here, which is missing where text is wanted.
        show = super()._repr_html_
        return lambda: show() + self._fit_html()

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._fit_html()
        return bundle

    def _fit_html(self):
        """Return how the fit went, as HTML; nothing before it, nor for a sampler."""
        fitted = hasattr(self, "fit") and is_fitted(self)
        history = getattr(self, "history_", None) if fitted else None
        if not history or not len(history["seconds"]):
            return ""
        if hasattr(self, "_problem_name"):
            names = [self._problem_name(k) for k in history["problem"]]
            history = history | {"problem": np.array(names)}
        return fit_html(history)

    def __reduce_ex__(self, protocol):
        return reduce_with_format(self, super().__reduce_ex__(protocol))

    def set_params(self, **params):
        """Set parameters, as scikit-learn does.

        Parameters
        ----------
        **params : dict
            Parameters; those of a sampler object as ``sampler__mixing``.

        Returns
        -------
        self : object
            The estimator.
        """
        sampler = params.get("sampler", getattr(self, "sampler", None))
        nested = [name for name in params if name.startswith("sampler__")]
        if nested and isinstance(sampler, str):
            raise ValueError(
                f"{nested[0]} is a parameter of a sampler, but sampler={sampler!r} is "
                "a name; give an object of sklearn_awsgd.samplers, such as "
                "sampler=StrataSampler()."
            )
        return super().set_params(**params)
