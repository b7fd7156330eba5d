"""How `make doc` builds the pages; every warning is an error."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "tools"))
import tables

import sklearn_awsgd

project = "sklearn_awsgd"
author = "the sklearn_awsgd developers"
copyright = "the sklearn_awsgd developers, BSD 3-Clause"
version = release = sklearn_awsgd.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx-mathjax-offline",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "tools", "auto_examples/*.ipynb"]
# The list of methods beside a page has their names alone, to fit.
toc_object_entries_show_parents = "hide"
nitpicky = True
# Types in docstrings are words, and other projects' pages are not fetched to check
# the links to them: a build needs no network.
nitpick_ignore_regex = [
    ("py:.*", r"(sklearn|scipy|numpy|np|pandas|matplotlib|joblib|dask|gymnasium)\..*"),
    ("py:class", r".*"),
]

autosummary_generate = True
autosummary_generate_overwrite = True
autodoc_default_options = {"members": True, "inherited-members": True}

numpydoc_show_class_members = False
# Not asked for: an extended summary, "See Also" and an example in every method, the
# place of the type in "Returns", and parameters and results of a method that one line
# says all of, as where it overrides another.
numpydoc_validation_checks = {"all", "ES01", "EX01", "SA01", "RT02", "PR01", "RT01"}
numpydoc_validation_exclude = {r"\.set_\w+_request$", r"\.get_metadata_routing$"}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "gallery.TourFirst",
    "plot_gallery": os.environ.get("SKLEARN_AWSGD_GALLERY", "1") == "1",
    "download_all_examples": False,
    "abort_on_example_error": True,
    "doc_module": ("sklearn_awsgd",),
    "reference_url": {"sklearn_awsgd": None},
    "backreferences_dir": "generated/backreferences",
    "show_memory": False,
    "min_reported_time": 1,
}

html_theme = "pydata_sphinx_theme"
html_title = f"sklearn_awsgd {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
html_sidebars = {page: [] for page in ("index", "install", "comparison", "paper")}


def skip_inherited(app, what, name, obj, skip, options):
    """Leave out what comes from scikit-learn: its texts link to its own pages."""
    module = getattr(obj, "__module__", None) or ""
    return True if module.startswith("sklearn.") else None


def setup(app):
    """Write the tables of the committed results before the pages are read."""
    tables.write_pages(Path(app.srcdir) / "generated" / "tables")
    app.connect("autodoc-skip-member", skip_inherited)
