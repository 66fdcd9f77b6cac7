"""Import a model file by its path, under a name of its own, so that it can neither hide nor be hidden by a module."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from elasticdl.errors import ModelError
from elasticdl.model.definition import Definition


def load(definition: Definition) -> ModuleType:
    """The module of the model file; whatever it raises becomes a ModelError that names the line.

    The zoo and the file's own directory go to the end of `sys.path`: the file may import its neighbours, and a
    neighbour called `random.py` does not replace Python's.
    """
    for directory in (definition.file.parent, definition.zoo):
        if str(directory) not in sys.path:
            sys.path.append(str(directory))
    name = f"elasticdl_model_{hashlib.sha256(str(definition.file).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, definition.file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and worker processes of a data loader look it up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:
        del sys.modules[name]
        raise ModelError(f"{definition.file} cannot be imported: {told(exc, definition.file)}") from exc
    return module


def told(exc: BaseException, file: Path) -> str:
    """An exception in one line, with the last line of `file` it passed through."""
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == str(file)]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(exc).__name__}: {exc}{where}"
