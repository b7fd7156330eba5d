"""Every example, as the notebook that the gallery offers, in a kernel of its own."""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PLOTS = sorted(EXAMPLES.glob("plot_*.py"))

nbclient = pytest.importorskip("nbclient")
gallery = pytest.importorskip("sphinx_gallery.gen_gallery")
notebooks = pytest.importorskip("sphinx_gallery.notebook")
parser = pytest.importorskip("sphinx_gallery.py_source_parser")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")


def notebook(path):
    """Return the notebook that sphinx-gallery makes of an example."""
    _, blocks = parser.split_code_and_text_blocks(str(path))
    settings = dict(gallery.DEFAULT_GALLERY_CONF, pypandoc=False)
    made = notebooks.jupyter_notebook(blocks, settings, str(path.parent))
    return nbformat.reads(json.dumps(made), as_version=4)


@pytest.mark.parametrize("path", PLOTS, ids=lambda path: path.stem)
def test_notebook_runs_from_a_clean_kernel(path, tmp_path, monkeypatch):
    # Generated data, as for a reader who has no other.
    monkeypatch.delenv("SKLEARN_AWSGD_DATA", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    client = nbclient.NotebookClient(
        notebook(path), timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    )
    ran = client.execute()
    outputs = [
        output
        for cell in ran.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not list(tmp_path.iterdir()), "an example leaves files behind"


def test_the_tour_has_fifteen_steps():
    cells = notebook(EXAMPLES / "plot_tour.py").cells
    assert sum(cell.cell_type == "code" for cell in cells) == 15
