"""What this installation has: the native core, the frameworks, the clients of Kubernetes."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple

from elasticdl.extras import install_command, reinstall_command

OK, MISSING, NOTE = "ok", "missing", "note"  # a note: works without, or cannot be seen from here


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    state: str
    told: str
    fix: str = ""


def findings() -> list[Finding]:
    return [
        _machine(),
        _core(),
        _package("torch", "torch", "to train models"),
        _package("tensorflow", "tensorflow", "for Keras"),
    ]


def _machine() -> Finding:
    from elasticdl.cli import home

    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("this machine", OK, f"Python {version}, {os.cpu_count()} cores, jobs in {home.jobs_directory()}")


def clients() -> Finding:
    """Of Kubernetes."""
    absent = [name for name in ("kubernetes", "websocket") if find_spec(name) is None]
    if absent:
        told = f"{', '.join(absent)} not installed"
        return Finding("client packages", MISSING, told, install_command("kubernetes"))
    return Finding("client packages", OK, f"kubernetes {metadata.version('kubernetes')}")


def _core() -> Finding:
    if find_spec("elasticdl.ps._native") is None:
        fix = f"install a C++ compiler, then {reinstall_command()}"
        return Finding("native core", NOTE, "not built; jobs with ps on this machine need it, images have it", fix)
    return Finding("native core", OK, "built")


def _package(name: str, extra: str, purpose: str) -> Finding:
    if find_spec(name) is None:
        fix = install_command(extra)
        return Finding(name, NOTE, f"not installed; needed {purpose} on this machine", fix)
    try:
        return Finding(name, OK, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, OK, "there")
