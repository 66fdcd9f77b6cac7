"""A person's own script as the worker's work: `elasticdl run train.py`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from elasticdl.errors import SpecError
from elasticdl.worker.assembly import Line

_line: Line | None = None


def run_script(line: Line) -> str:
    """Run the script as `__main__`; it takes part from its call of `elasticdl.torch.join` on."""
    global _line
    script = line.spec.script
    assert script is not None
    if not Path(script.path).is_file():
        raise SpecError(f"script.path: {script.path} is no file")
    _line = line
    sys.argv = [script.path, *script.arguments]
    sys.path.insert(0, str(Path(script.path).resolve().parent))
    runpy.run_path(script.path, run_name="__main__")
    return "the script is done"


def current_line() -> Line | None:
    """The line of this process, where it was started as a worker of a job."""
    return _line
