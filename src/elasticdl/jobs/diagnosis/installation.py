"""Checks what is installed: the native core, the frameworks, the Kubernetes client."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple

from elasticdl.extras import install_command, reinstall_command

OK, MISSING, NOTE = "ok", "missing", "note"  # a note: not required, or cannot be checked


class DiagnosisFinding(NamedTuple):
    """The result of one check."""

    subject: str
    state: str
    message: str
    fix: str = ""


def diagnose_installation() -> list[DiagnosisFinding]:
    return [
        _diagnose_machine(),
        _diagnose_native_core(),
        _diagnose_package("torch", "torch", "to train models"),
        _diagnose_package("tensorflow", "tensorflow", "for Keras"),
        _diagnose_package("pyarrow", "parquet", "for models' data and Parquet files"),
        _diagnose_package("matplotlib", "figures", "for timelines and reports"),
    ]


def _diagnose_machine() -> DiagnosisFinding:
    from elasticdl.jobs import home

    version = ".".join(map(str, sys.version_info[:3]))
    return DiagnosisFinding(
        "this machine", OK, f"Python {version}, {os.cpu_count()} cores, jobs in {home.jobs_directory()}"
    )


def diagnose_kubernetes_client() -> DiagnosisFinding:
    """Check that the packages of the Kubernetes client are installed."""
    absent = [name for name in ("kubernetes", "websocket") if find_spec(name) is None]
    if absent:
        message = f"{', '.join(absent)} not installed"
        return DiagnosisFinding("client packages", MISSING, message, install_command("kubernetes"))
    return DiagnosisFinding("client packages", OK, f"kubernetes {metadata.version('kubernetes')}")


def _diagnose_native_core() -> DiagnosisFinding:
    if any(find_spec(core) is None for core in ("elasticdl.ps._native", "elasticdl.features._native")):
        fix = f"install a C++ compiler, then {reinstall_command()}"
        message = "not built; jobs with ps and transforms of text need it on this machine, images have it"
        return DiagnosisFinding("native core", NOTE, message, fix)
    return DiagnosisFinding("native core", OK, "built")


def _diagnose_package(name: str, extra: str, purpose: str) -> DiagnosisFinding:
    if find_spec(name) is None:
        fix = install_command(extra)
        return DiagnosisFinding(name, NOTE, f"not installed; needed {purpose} on this machine", fix)
    try:
        return DiagnosisFinding(name, OK, metadata.version(name))
    except metadata.PackageNotFoundError:
        return DiagnosisFinding(name, OK, "installed")
