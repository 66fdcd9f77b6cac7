"""The push counter of a ps that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from elasticdl.ps.tables import push_statistics


def test_the_counter_survives_a_killed_ps(tmp_path: Path) -> None:
    path = tmp_path / "ps-0"
    program = f"""
import sys
from pathlib import Path
from elasticdl.ps.tables.push_statistics import PushCountFile
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.slots import SlotMap
from tests.unit.ps.tables import test_push_policy as here
from tests.ps_requests import reply_to
held = PsState("ps-0", seed=1, push_count_file=PushCountFile.create(Path({str(path)!r})))
held.set_slot_map(SlotMap.initial(["ps-0"]))
held.declare(here.ZEROS)
for number in (1, 2, 3, 3):
    reply_to(held, here.push([1], 1.0, number=number))
print("done", flush=True)
sys.stdin.read()
"""
    ps = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert ps.stdout and ps.stdin
    assert ps.stdout.readline() == b"done\n"
    os.kill(ps.pid, signal.SIGKILL)
    ps.wait()
    ps.stdout.close()
    ps.stdin.close()

    assert push_statistics.read_push_count(path) == push_statistics.PushCount(applied=3, clock=4)
