"""An analysis that is stopped by Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import until

LIMIT_S = 60.0


def test_ctrl_c_ends_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    temporary, output = tmp_path / "temp", tmp_path / "out"
    temporary.mkdir()
    output.mkdir()
    line = ",".join(["0", *(f"some text {index}" for index in range(30))]) + "\n"
    data = tmp_path / "clicks.csv"
    data.write_text(",".join(["label", *(f"c{index}" for index in range(30))]) + "\n" + line * 600_000)
    words = ["analyze", str(data), "--label", "label", "-o", str(output / "features.yaml"), "--temp", str(temporary)]
    # A shell's background jobs ignore the signal, and so would their children.
    argv = [sys.executable, "-c", _HEARD, "features", *words]
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until("it reads the file", lambda: _reads(running.pid, data) or running.poll() is not None, LIMIT_S)

    running.send_signal(signal.SIGINT)
    printed, _ = running.communicate(timeout=LIMIT_S)

    assert running.returncode == 130, printed
    assert "Traceback" not in printed
    assert list(temporary.iterdir()) == []
    assert list(output.iterdir()) == []


def _reads(process: int, data: Path) -> bool:
    """Returns whether the process has the data open."""
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            if descriptor.readlink() == data:
                return True
        except OSError:
            continue  # closed meanwhile
    return False


_HEARD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from elasticdl.cli.main import main
main()
"""
