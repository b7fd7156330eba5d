"""What all estimators share: links to their documentation, and how they are saved."""

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

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


class DocumentationLinkMixin:
    """Link an estimator to its page of the documentation, where that has an address.

    A subclass names the page in `_doc_page`. Saved models tell their format.
    """

    _doc_link_module = "sklearn_awsgd"

    @property
    def _doc_link_template(self):
        url = documentation_url()
        return f"{url}/{self._doc_page}.html" if url else ""

    def __reduce_ex__(self, protocol):
        return reduce_with_format(self, super().__reduce_ex__(protocol))
