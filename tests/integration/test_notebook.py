"""The notebook of the examples runs from its first cell to its last.

With nbclient and ipykernel in a Jupyter kernel; without them, its cells in order in one Python process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from elasticdl.launcher.local import processes
from elasticdl.spec.directory import JobDirectory

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = "13-notebook/train.ipynb"
TIMEOUT_S = 200

IN_A_KERNEL = """
import nbclient, nbformat, sys
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=int(sys.argv[2]), resources={"metadata": {"path": "."}}).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text") or output.get("data", {}).get("text/plain", ""))
"""
IN_ONE_PROCESS = """
import json, sys
names = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), "cell", "exec"), names)
print(dict(names["status"].metrics))
"""


def has_jupyter() -> bool:
    return all(find_spec(name) is not None for name in ("nbclient", "ipykernel"))


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(IN_ONE_PROCESS, id="one-process", marks=pytest.mark.skipif(has_jupyter(), reason="in a kernel")),
        pytest.param(IN_A_KERNEL, id="kernel", marks=pytest.mark.skipif(not has_jupyter(), reason="needs nbclient")),
    ],
)
def test_the_notebook_trains_scales_waits_and_evaluates(program: str, tmp_path: Path) -> None:
    for name in ("02-evaluation-and-callbacks", "13-notebook"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    environ = os.environ | {"ELASTICDL_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, "train.ipynb", str(TIMEOUT_S)],
            cwd=tmp_path / "13-notebook", env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    finally:
        for path in (tmp_path / "home" / "jobs").glob("*/spec.json"):
            processes.kill_processes(JobDirectory(path.parent))

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "worker-joined worker-2" in done.stdout and "accuracy" in done.stdout
    assert {path.name for path in (tmp_path / "13-notebook" / "trained").iterdir()} >= {"model.safetensors"}


def test_the_notebook_is_stored_without_outputs() -> None:
    cells = json.loads((EXAMPLES / NOTEBOOK).read_text())["cells"]

    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
