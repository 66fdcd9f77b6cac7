"""Tests of the native core are skipped if there is no compiler; with one the core must have been built."""

from __future__ import annotations

import importlib
import shutil

import pytest


def require(name: str = "elasticdl.ps._native") -> None:
    """Skip where the core could not be built; fail where it should have been."""
    try:
        importlib.import_module(name)
    except ImportError as exc:
        if shutil.which("g++"):
            raise
        pytest.skip(f"the native core is not built: {exc}", allow_module_level=True)
