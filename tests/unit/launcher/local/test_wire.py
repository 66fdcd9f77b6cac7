"""Lines between launcher and master."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.interface import (
    Command,
    DelayedReport,
    DetachedReport,
    EndCommand,
    ExitedProcess,
    HeartbeatCommand,
    HeartbeatReport,
    LaunchCommand,
    ReplicasReport,
    Report,
    SignalCommand,
    StartedReport,
    StopReport,
)
from elasticdl.launcher.local import wire
from elasticdl.launcher.local.wire import JsonLineDecoder, MalformedLine, encode_line

DOCUMENTS = st.lists(st.dictionaries(st.text(), st.integers() | st.text()), max_size=4)


@given(DOCUMENTS, st.integers(1, 9))
def test_documents_arrive_complete_however_they_are_split(documents: list[dict[str, object]], piece: int) -> None:
    sent, lines = b"".join(map(encode_line, documents)), JsonLineDecoder()

    arrived = [document for start in range(0, len(sent), piece) for document in lines.feed(sent[start : start + piece])]

    assert arrived == documents


@pytest.mark.parametrize("line", [b"{]\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_a_line_without_a_document_is_garbled(line: bytes) -> None:
    with pytest.raises(MalformedLine, match="expected"):
        JsonLineDecoder().feed(line)


def test_a_line_without_an_end_is_garbled_and_not_stored_forever() -> None:
    lines = JsonLineDecoder(max_bytes=100)
    lines.feed(b"x" * 100)

    with pytest.raises(MalformedLine, match="at most 100 bytes"):
        lines.feed(b"x")


COMMANDS: list[Command] = [
    LaunchCommand("worker-0", "worker", ("python",), {"A": "ü"}, 1, 2, ("worker-1",)),
    SignalCommand("ps-0", 9),
    HeartbeatCommand(1.5),
    EndCommand(130, 0.5),
    EndCommand(0),
]
EXITED = ExitedProcess("worker-1", 13, None, 9, 6.5, cause="oom", peak_bytes=7, reason="none")
REPORTS: list[Report] = [
    ReplicasReport((StartedReport("worker-0", 12, 1.0),), (EXITED,)),
    StartedReport("worker-0", 12, 1.0),
    EXITED,
    DelayedReport("worker-0", "no room", is_trouble=True),
    DetachedReport(),
    StopReport("deleted"),
    HeartbeatReport(),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_arrives_as_it_was(command: Command) -> None:
    (document,) = JsonLineDecoder().feed(encode_line(wire.command_document(command)))

    assert wire.parse_command(document) == command


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_report_arrives_as_it_was(report: Report) -> None:
    (document,) = JsonLineDecoder().feed(encode_line(wire.report_document(report)))

    assert wire.parse_report(document) == report


@pytest.mark.parametrize("document", [{}, {"command": "dance"}, {"command": "signal", "replica": "ps-0"}])
def test_a_document_that_is_no_command_is_malformed(document: dict[str, object]) -> None:
    with pytest.raises(MalformedLine, match="expected"):
        wire.parse_command(document)
