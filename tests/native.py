"""The native core in tests: without a compiler they are skipped, with one it must be there."""

from __future__ import annotations

import shutil

import pytest


def require() -> None:
    """Skip where the core could not be built; fail where it should have been."""
    try:
        import elasticdl.ps._native  # noqa: F401
    except ImportError as exc:
        if shutil.which("g++"):
            raise
        pytest.skip(f"the native core is not built: {exc}", allow_module_level=True)
