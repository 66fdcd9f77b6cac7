"""Errors of a process without the Kubernetes client."""

from __future__ import annotations

import subprocess
import sys


def test_a_missing_client_is_an_error_with_the_command_that_installs_it() -> None:
    program = """
import sys
sys.modules["kubernetes"] = None
import elasticdl.kube.kinds, elasticdl.kube.errors, elasticdl.kube.api, elasticdl.kube.watch
from elasticdl.errors import SpecError
try:
    elasticdl.kube.api.Api.connect()
except SpecError as exc:
    print(exc)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[kubernetes]'" in process.stdout
