"""The native core in tests: without a compiler they are skipped, with one it must be there."""

from __future__ import annotations

import shutil

import pytest

from elasticdl.errors import PermanentError


def require() -> None:
    """Skip where the core could not be built; fail where it should have been."""
    try:
        import elasticdl.ps  # noqa: F401
    except PermanentError as exc:
        if shutil.which("g++"):
            raise
        pytest.skip(str(exc), allow_module_level=True)
