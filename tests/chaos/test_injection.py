"""Each fault does what its name says."""

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
from tests.chaos.injection import available_kinds
from tests.chaos.processes import HANG_UP_S, MAX_NEW_DESCRIPTORS, SETTLE_S, Leaks
from tests.chaos.schedule import Kind
from tests.integration import trouble
from tests.integration.trouble import Trouble
from tests.waiting import until

FILES_AND_CLOCK = """
import sys, time
for line in sys.stdin:
    try:
        with open(sys.argv[1], "ab", buffering=0) as file:
            file.write(b"x")
        print("well", int(time.time()), flush=True)
    except OSError as exc:
        print(exc.errno, int(time.time()), flush=True)
"""
LISTENER = """
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
before = reached(); loss.refresh(); during = reached(); loss.end(); after = reached()
print(before, during, after)
"""

VISITED = """
import os, socket, sys
sys.path.insert(0, os.getcwd())
from tests.chaos.network import MAX_STRANGERS, Strangers
listener = socket.create_server(("127.0.0.1", 0), backlog=MAX_STRANGERS)
strangers = Strangers(os.getpid())
for _ in range(MAX_STRANGERS // 4):
    strangers.tick()
behaviour = []
for _ in range(3):
    guest, _ = listener.accept()
    guest.setblocking(False)
    try:
        behaviour.append("garbage" if len(guest.recv(1 << 20)) > MAX_STRANGERS else "slow")
    except BlockingIOError:
        behaviour.append("silent")
strangers.end()
print(strangers.count, *behaviour)
"""


@pytest.mark.skipif(not can_build(), reason="no C compiler")
def test_files_of_a_process_fail_and_its_clock_jumps_until_the_faults_end(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, tmp_path / "root")
    (tmp_path / "root").mkdir()
    argv = [sys.executable, "-c", FILES_AND_CLOCK, str(tmp_path / "root" / "file")]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin", **faulty.environ}
    ) as process:

        def write_and_read_clock() -> tuple[str, int]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            outcome, time_s = process.stdout.readline().split()
            return outcome, int(time_s)

        outcome, began = write_and_read_clock()
        assert outcome == "well"
        faulty.fail_files(process.pid, 2)
        assert [write_and_read_clock()[0] for _ in range(3)] == ["5", "5", "well"]
        faulty.move_clock(process.pid, 86_400.0)
        faulty.move_clock(0, 3_600.0)
        assert 90_000 <= write_and_read_clock()[1] - began < 90_600
        faulty.move_clock(process.pid, 0.0)
        faulty.move_clock(0, 0.0)
        assert 0 <= write_and_read_clock()[1] - began < 600
        faulty.fail_files(1, 5)  # files of another process
        assert write_and_read_clock()[0] == "well"


@pytest.mark.skipif(Kind.DEAF not in available_kinds(), reason="no network namespaces with iptables here")
def test_packets_to_a_deaf_process_are_lost_until_the_fault_ends() -> None:
    argv = ["unshare", "--net", sys.executable, "-c", LISTENER]
    completed = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])

    assert completed.stdout.split() == ["True", "False", "True"]


def test_strangers_connect_to_the_ports_of_a_process_and_are_silent_slow_or_send_garbage() -> None:
    argv = [sys.executable, "-c", VISITED]
    completed = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])

    assert completed.stdout.split() == ["150", "silent", "slow", "garbage"]


def test_a_model_raises_or_deadlocks_once_on_request_in_the_requested_process_only(tmp_path: Path) -> None:
    requests = tmp_path / "trouble"
    model = trouble.with_trouble(nn.Linear(1, 1), str(requests))
    request = trouble.request_trouble(requests, os.getpid(), Trouble.RAISE)
    trouble.request_trouble(requests, os.getpid() + 1, Trouble.RAISE)

    with pytest.raises(RuntimeError, match="was asked to fail once"):
        model(torch.ones(1))
    model(torch.ones(1))

    assert not request.exists()
    request = trouble.request_trouble(requests, os.getpid(), Trouble.DEADLOCK)
    deadlocked = threading.Thread(target=model, args=(torch.ones(1),), daemon=True)
    deadlocked.start()
    until("the model deadlocks", lambda: not request.exists(), 10.0)
    assert deadlocked.is_alive()


def test_descriptors_of_strangers_are_no_leak_but_those_that_remain_after_them_are() -> None:
    leaks, own_process = Leaks(), {"ps-0": os.getpid()}
    leaks.measure(own_process, 0.0)
    leaks.measure(own_process, SETTLE_S)
    descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(MAX_NEW_DESCRIPTORS + 1)]
    leaks.pause_until(os.getpid(), 20.0)

    leaks.measure(own_process, 20.0 + HANG_UP_S - 0.1)
    leaks_during_visits = leaks.find_leaks()
    leaks.measure(own_process, 20.0 + HANG_UP_S)

    for descriptor in descriptors:
        os.close(descriptor)
    assert leaks_during_visits == []
    assert [leak.split(" grew")[0] for leak in leaks.find_leaks()] == [f"ps-0 ({os.getpid()})"]


def test_a_worker_that_still_imports_does_not_leak() -> None:
    leaks, script = Leaks(), "import os; input(); held = [os.dup(0) for _ in range(100)]; print(flush=True); input()"
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        both = {"worker-0": process.pid, "ps-0": process.pid}
        for now in (0.0, SETTLE_S):
            leaks.measure(both, now)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        leaks.measure(both, 2 * SETTLE_S)
        process.kill()

    assert [leak.split(" grew")[0] for leak in leaks.find_leaks()] == [f"ps-0 ({process.pid})"]
