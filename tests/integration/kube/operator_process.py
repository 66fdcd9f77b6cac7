"""An operator as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.integration.kube.apiserver import free_port

LEASE_S = 3.0


class OperatorProcess:
    """A running operator."""

    def __init__(self, log: Path, environ: dict[str, str], lease: str) -> None:
        self.log, self.port = log, free_port()
        options = ["--port", str(self.port), "--lease", lease, "--lease-seconds", str(LEASE_S)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "elasticdl.operator", *options], env=environ, stdout=output, stderr=output
            )

    def read_metrics(self, path: str = "metrics") -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            return ""

    def is_leader(self) -> bool:
        return "elasticdl_operator_is_leader 1.0" in self.read_metrics()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(timeout=30)
