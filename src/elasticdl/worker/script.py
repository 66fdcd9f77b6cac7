"""A person's own script as the worker's work: `elasticdl run train.py`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from elasticdl.errors import SpecError
from elasticdl.worker.assembly import Assembly, Line
from elasticdl.worker.ending import finish
from elasticdl.worker.training import fix_numerics

_line: Line | None = None
_assembly: Assembly | None = None


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
    fix_numerics(line.spec.workers.threads, line.spec.workers.device, line.spec.plan.reproducible)
    runpy.run_path(script.path, run_name="__main__")
    if _assembly is None:
        raise SpecError(f"{script.path} ended without calling elasticdl.torch.join, so nothing was trained")
    return finish(line, _assembly, lambda path: None)


def current_line() -> Line | None:
    """The line of this process, where it was started as a worker of a job."""
    return _line


def keep_assembly(assembly: Assembly) -> None:
    """The script joined: what is left to do at its end."""
    global _assembly
    if _assembly is not None:
        raise SpecError("elasticdl.torch.join was called twice; a script is one training run")
    _assembly = assembly
