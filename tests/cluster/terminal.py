"""A real terminal in which a command runs, by tmux: reads its screen and types into it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.kube import ROOT, Kube

ENDED = "ended with "


def why_not() -> str:
    return "" if shutil.which("tmux") else "tmux is not installed"


class Terminal:
    def __init__(self, kube: Kube, name: str) -> None:
        self._tmux = ["tmux", "-L", f"elasticdl-{os.getpid()}-{name}", "-f", "/dev/null"]
        self._environ = {**kube.environ, "PYTHONPATH": str(ROOT / "src"), "PS1": "$ "}

    @classmethod
    @contextmanager
    def open(cls, kube: Kube, name: str) -> Iterator[Terminal]:
        terminal = cls(kube, name)
        terminal._do("new-session", "-d", "-x", "150", "-y", "60", "bash --norc --noprofile")
        try:
            yield terminal
        finally:
            terminal._do("kill-server")

    def elasticdl(self, *words: str) -> None:
        command = shlex.join([sys.executable, "-m", "elasticdl.cli", *words])
        self._do("send-keys", "-l", f"clear; {command}; echo {ENDED}$?")
        self.press("Enter")

    def press(self, key: str) -> None:
        self._do("send-keys", key)

    @property
    def screen(self) -> str:
        """Without what stands empty at the end of lines."""
        return "\n".join(line.rstrip() for line in self._do("capture-pane", "-p", "-J").splitlines())

    def wait(self, words: str, patience_s: float = 60.0) -> str:
        """Waits until the words are on the screen, except where they were typed."""
        deadline = time.monotonic() + patience_s
        while True:
            shown = self.screen
            if words in shown.replace(f"echo {ENDED}", ""):
                return shown
            assert time.monotonic() < deadline, f"waited in vain for {words!r} on the screen:\n{shown}"
            time.sleep(0.2)

    def _do(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=self._environ, capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout
