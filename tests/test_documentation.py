"""The README and the pages say what the committed results say, and build."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "doc" / "tools"))
sys.path.insert(0, str(ROOT / "tests" / "tools"))
rst, tables = (importlib.import_module(name) for name in ("rst", "tables"))
look, chromium = (
    getattr(importlib.import_module("look"), n) for n in ("look", "chromium")
)


def test_table_of_the_readme_is_that_of_the_results():
    text = tables.README.read_text()
    assert tables.with_table(text) == text, "run `make tables`"


def test_times_that_were_not_reached_are_dashes():
    assert rst.times(float("inf"), 1.0) == "--"
    assert rst.times(3.0, 2.0) == "1.5x"
    assert [rst.number(v) for v in (0.0123, 12345.6, None)] == [
        "0.012",
        "12,346",
        "--",
    ]


@pytest.mark.parametrize("name", list(tables.PAGES))
def test_tables_are_rectangles(name):
    """Every line of a table fits between its rules, which a page would not tell."""
    lines = tables.PAGES[name]().splitlines()
    rules = {len(line) for line in lines if line.startswith("==")}
    assert rules
    assert max(len(line) for line in lines) <= max(rules)


def test_every_page_is_in_the_contents():
    """A page that no contents lists would not be found by a reader."""
    pages = {path.stem for path in (ROOT / "doc").glob("*.rst")}
    # A line of its own, ``page`` or ``Title <page>``.
    listed = {
        page
        for path in (ROOT / "doc").glob("*.rst")
        for page in re.findall(r"^   (?:[\w ]+ <)?(\w+)>?$", path.read_text(), re.M)
    }
    assert pages - listed - {"index", "sg_execution_times"} == set()


@pytest.fixture(scope="module")
def quick_build(tmp_path_factory):
    """Return the folder of the pages, built without running the examples."""
    pytest.importorskip("sphinx_gallery")
    folder = tmp_path_factory.mktemp("pages")
    # A copy, for the build writes beside its sources.
    written = shutil.ignore_patterns("_build", "auto_examples", "generated", "sg_*")
    for name in ("doc", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=written)
    shutil.copy(ROOT / "CHANGELOG.rst", folder)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    ran = subprocess.run(
        [*command, folder / "doc", folder / "html"],
        env=os.environ | {"SKLEARN_AWSGD_GALLERY": "0"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return folder / "html"


def test_pages_build_without_a_warning(quick_build):
    """Broken references, docstrings numpydoc refuses and missing files are warnings."""
    assert (quick_build / "index.html").is_file()
    assert (quick_build / "generated/sklearn_awsgd.AWSGDClassifier.html").is_file()
    assert (quick_build / "auto_examples/plot_tour.html").is_file()


@pytest.mark.skipif(chromium() is None, reason="there is no Chromium")
def test_a_browser_finds_links_images_and_the_search(quick_build):
    seen = look(quick_build)
    assert seen["wrong"] == []
    assert seen["links"] > 1000
    assert seen["images"] > 5
    assert seen["found"] > 3
