"""The command line as a process."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["jobs"]])
def test_the_command_line_starts_without_the_heavy_packages(words: list[str]) -> None:
    program = (
        "import sys; from elasticdl.cli.main import cli\n"
        f"try: cli.main({words!r})\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'grpc', 'matplotlib', 'numpy', 'pyarrow') if name in sys.modules])"
    )

    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert output.splitlines()[-1] == "[]"


def test_a_busy_thread_does_not_delay_the_exit() -> None:
    program = """
import sys, threading
from elasticdl.cli import main
threading.Thread(target=threading.Event().wait).start()  # no daemon: Python itself would wait for it
print("said", end="")
sys.argv = ["elasticdl", "nonsense"]
main.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)

    assert (done.returncode, done.stdout) == (2, "said")
    assert "no such command 'nonsense'" in done.stderr
