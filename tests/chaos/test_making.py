"""Faults do what they are called."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.chaos.faulty import Faulty, can_build
from tests.chaos.processes import GREETED_S, GROWN_DESCRIPTORS, SETTLED_S, Leaks
from tests.chaos.schedule import Kind
from tests.chaos.striking import available
from tests.integration import trouble
from tests.integration.trouble import Trouble
from tests.waiting import until

SEES = """
import sys, time
for line in sys.stdin:
    try:
        with open(sys.argv[1], "ab", buffering=0) as file:
            file.write(b"x")
        print("well", int(time.time()), flush=True)
    except OSError as exc:
        print(exc.errno, int(time.time()), flush=True)
"""
LISTENS = """
import socket, subprocess, sys, os
sys.path.insert(0, os.getcwd())
from tests.chaos.network import Loss
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
listener = socket.create_server(("127.0.0.1", 0))
def reached():
    try:
        socket.create_connection(listener.getsockname(), timeout=0.5).close()
        return True
    except OSError:
        return False
loss = Loss(os.getpid(), inward=True, outward=False, probability=1.0)
before = reached(); loss.cover(); during = reached(); loss.end(); after = reached()
print(before, during, after)
"""

BESIEGED = """
import os, socket, sys
sys.path.insert(0, os.getcwd())
from tests.chaos.network import MOST_STRANGERS, Strangers
listener = socket.create_server(("127.0.0.1", 0), backlog=MOST_STRANGERS)
strangers = Strangers(os.getpid())
for _ in range(MOST_STRANGERS // 4):
    strangers.tick()
said = []
for _ in range(3):
    guest, _ = listener.accept()
    guest.setblocking(False)
    try:
        said.append("nonsense" if len(guest.recv(1 << 20)) > MOST_STRANGERS else "slow")
    except BlockingIOError:
        said.append("silent")
strangers.end()
print(strangers.count, *said)
"""


@pytest.mark.skipif(not can_build(), reason="no C compiler")
def test_a_process_is_told_errors_of_its_files_and_another_time_and_then_the_truth_again(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, tmp_path / "root")
    (tmp_path / "root").mkdir()
    argv = [sys.executable, "-c", SEES, str(tmp_path / "root" / "file")]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin", **faulty.environ}
    ) as process:

        def ask() -> tuple[str, int]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            told, at = process.stdout.readline().split()
            return told, int(at)

        told, began = ask()
        assert told == "well"
        faulty.fail_files(process.pid, 2)
        assert [ask()[0] for _ in range(3)] == ["5", "5", "well"]
        faulty.move_clock(process.pid, 86_400.0)
        faulty.move_clock(0, 3_600.0)
        assert 90_000 <= ask()[1] - began < 90_600
        faulty.move_clock(process.pid, 0.0)
        faulty.move_clock(0, 0.0)
        assert 0 <= ask()[1] - began < 600
        faulty.fail_files(1, 5)  # somebody else's files
        assert ask()[0] == "well"


@pytest.mark.skipif(Kind.DEAF not in available(), reason="no network namespaces with iptables here")
def test_what_is_sent_to_a_deaf_process_is_lost_until_it_hears_again() -> None:
    argv = ["unshare", "--net", sys.executable, "-c", LISTENS]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])

    assert done.stdout.split() == ["True", "False", "True"]


def test_strangers_come_to_the_ports_of_a_process_silent_slow_and_talking_nonsense() -> None:
    argv = [sys.executable, "-c", BESIEGED]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])

    assert done.stdout.split() == ["150", "silent", "slow", "nonsense"]


def test_a_model_raises_or_deadlocks_once_when_it_is_asked_in_the_process_that_is_asked(tmp_path: Path) -> None:
    place = tmp_path / "trouble"
    model = trouble.heeding(nn.Linear(1, 1), str(place))
    mine = trouble.ask(place, os.getpid(), Trouble.RAISE)
    trouble.ask(place, os.getpid() + 1, Trouble.RAISE)

    with pytest.raises(RuntimeError, match="was asked to fail once"):
        model(torch.ones(1))
    model(torch.ones(1))

    assert not mine.exists()
    asked = trouble.ask(place, os.getpid(), Trouble.DEADLOCK)
    deadlocked = threading.Thread(target=model, args=(torch.ones(1),), daemon=True)
    deadlocked.start()
    until("it is heeded", lambda: not asked.exists(), 10.0)
    assert deadlocked.is_alive()


def test_what_strangers_cost_is_no_leak_and_what_stays_after_them_is() -> None:
    leaks, mine = Leaks(), {"ps-0": os.getpid()}
    leaks.measure(mine, 0.0)
    leaks.measure(mine, SETTLED_S)
    kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(GROWN_DESCRIPTORS + 1)]
    leaks.besiege(os.getpid(), 20.0)

    leaks.measure(mine, 20.0 + GREETED_S - 0.1)
    meanwhile = leaks.found()
    leaks.measure(mine, 20.0 + GREETED_S)

    for descriptor in kept:
        os.close(descriptor)
    assert meanwhile == []
    assert [told.split(" grew")[0] for told in leaks.found()] == [f"ps-0 ({os.getpid()})"]


def test_a_worker_that_still_imports_does_not_leak() -> None:
    leaks, script = Leaks(), "import os; input(); held = [os.dup(0) for _ in range(100)]; print(flush=True); input()"
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        both = {"worker-0": process.pid, "ps-0": process.pid}
        for now in (0.0, SETTLED_S):
            leaks.measure(both, now)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        leaks.measure(both, 2 * SETTLED_S)
        process.kill()

    assert [told.split(" grew")[0] for told in leaks.found()] == [f"ps-0 ({process.pid})"]
