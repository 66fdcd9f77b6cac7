"""The record that one launcher writes and another reads."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.interface import ExitedProcess, LaunchCommand, RunningProcess
from elasticdl.launcher.local import wire
from elasticdl.launcher.local.record import LauncherRecord
from elasticdl.launcher.local.watched_process import start_ticks
from elasticdl.launcher.replica_environ import inherited_environ


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    worker = RunningProcess("worker-0", 12, 1.5, 300)
    record = LauncherRecord(
        RunningProcess("launcher", 10, 1.0, 100),
        master=RunningProcess("master", 11, 1.2, 200),
        is_detached=True,
        replicas={"worker-0": worker},
        exited=[ExitedProcess("worker-1", 13, None, 9, 2.0)],
    )

    record.save(tmp_path / "launcher.json")

    assert LauncherRecord.load(tmp_path / "launcher.json") == record


def test_without_a_launcher_there_is_no_record(tmp_path: Path) -> None:
    assert LauncherRecord.load(tmp_path / "launcher.json") is None


def test_a_process_is_known_by_its_start_time() -> None:
    assert start_ticks(os.getpid()) == start_ticks(os.getpid())
    assert start_ticks(os.getpid()) != start_ticks(1)


def test_an_unused_pid_has_no_start_time() -> None:
    assert start_ticks(2**22 + 1) is None


def test_the_identity_of_a_process_is_not_inherited() -> None:
    environ = {"PATH": "/bin", "ELASTICDL_WORKER": "worker-9", "RANK": "0", "MY_OWN": "kept"}

    assert inherited_environ(environ) == {"PATH": "/bin", "MY_OWN": "kept"}


@given(st.data())
def test_commands_arrive_complete_however_the_stream_is_split(data: st.DataObject) -> None:
    commands = [LaunchCommand(f"worker-{number}", "worker", ("a\n", "é"), {"X": "1"}) for number in range(3)]
    stream = b"".join(wire.encode_line(wire.command_document(command)) for command in commands)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))

    lines = wire.JsonLineDecoder()
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert [wire.parse_command(document) for piece in pieces for document in lines.feed(piece)] == commands
