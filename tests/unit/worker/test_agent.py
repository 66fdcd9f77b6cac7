"""The environment that the agent gives an unmodified script, and its description of the exit."""

from __future__ import annotations

import socket
from functools import reduce

import pytest

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind, JobSpec, ScriptSpec, WorkersSpec
from elasticdl.worker.agent import ReservedPort
from elasticdl.worker.script_process import exit_reason, more_telling_line, script_environ

SPEC = JobSpec(
    name="ddp",
    kind=JobKind.SCRIPT,
    script=ScriptSpec(path="train.py", compat="ddp"),
    workers=WorkersSpec(replicas=3, failure_budget=5, threads=2),
)


def round_of(*addresses: str, number: int = 4) -> pb.Round:
    members = [pb.Member(worker=f"worker-{rank}", store_address=address) for rank, address in enumerate(addresses)]
    return pb.Round(id=number, members=members, forced=True)


def test_workers_of_one_machine_are_one_group_with_local_ranks() -> None:
    environ = script_environ(SPEC, round_of("127.0.0.1:4000", "127.0.0.1:4001", "127.0.0.1:4002"), "worker-1")

    assert environ == {
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4000",
        "TORCHELASTIC_RESTART_COUNT": "3",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_RUN_ID": "ddp",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "OMP_NUM_THREADS": "2",
    }


def test_every_pod_counts_as_its_own_machine() -> None:
    environ = script_environ(SPEC, round_of("10.0.0.7:4000", "10.0.0.9:4001", "10.0.0.8:4002"), "worker-2")

    assert (environ["RANK"], environ["LOCAL_RANK"], environ["LOCAL_WORLD_SIZE"]) == ("2", "0", "1")
    assert (environ["GROUP_RANK"], environ["GROUP_WORLD_SIZE"]) == ("2", "3")
    assert (environ["MASTER_ADDR"], environ["MASTER_PORT"]) == ("10.0.0.7", "4000")


@pytest.mark.parametrize(
    ("code", "last_line", "expected"),
    [
        (1, "ValueError: boom", "exited with code 1: ValueError: boom"),
        (2, "", "exited with code 2"),
        (0, "a warning", "exited with code 0"),
        (-9, "anything", "was killed by SIGKILL"),
        (-6, "ValueError: boom", "was killed by SIGABRT: ValueError: boom"),
        (-40, "", "was killed by signal 40"),
    ],
)
def test_the_exit_of_a_script_is_described_in_one_line(code: int, last_line: str, expected: str) -> None:
    assert exit_reason(code, last_line) == expected


def test_the_exception_is_preferred_over_later_lines_of_libraries() -> None:
    lines = [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "train.py", line 3, in <module>',
        "[rank1]: ValueError: boom",
        "[W1118 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called",
        "",
    ]

    assert reduce(more_telling_line, lines, "") == "ValueError: boom"
    assert reduce(more_telling_line, ["one", "usage: two", ""], "") == "usage: two"


def test_a_reserved_port_can_be_listened_on_by_a_socket_that_reuses_addresses() -> None:
    port = ReservedPort.bind("127.0.0.1")
    try:
        host, _, number = port.address.rpartition(":")
        # create_server sets SO_REUSEADDR, as the store of torch does.
        with socket.create_server((host, int(number))) as server, socket.create_connection(server.getsockname()[:2]):
            pass
        with socket.socket() as plain, pytest.raises(OSError, match="in use"):
            plain.bind((host, int(number)))
    finally:
        port.close()
