from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl import __version__
from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.journal_frames import FrameEncoder, JournalWriterInfo
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.phase import Outcome
from elasticdl.master.machine.state_machine import StateMachine
from elasticdl.master.runtime import codec
from elasticdl.master.runtime.journal import FileJournal, archive_earlier_run
from elasticdl.master.runtime.replay import replay_journal
from elasticdl.spec import WorkerId
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.phase import Phase
from tests.unit.master.driver import job_spec

W = WorkerId("worker-0")


def append_records(path: Path, *payloads: bytes, run: int = 1) -> Path:
    journal = FileJournal(path, run)
    list(journal.replay())
    journal.append(list(payloads))
    journal.close()
    return path


def read_records(path: Path) -> list[bytes]:
    journal = FileJournal(path, run=1)
    try:
        return list(journal.replay())
    finally:
        journal.close()


def test_appended_records_are_replayed_in_order(tmp_path: Path) -> None:
    path = append_records(tmp_path / "journal", b"[1]", b"[2]")
    append_records(path, b"[3]")

    assert read_records(path) == [b"[1]", b"[2]", b"[3]"]


def test_a_torn_end_is_removed_and_the_journal_continues(tmp_path: Path) -> None:
    path = append_records(tmp_path / "journal", b"[1]")
    complete_bytes = len(path.read_bytes())
    content = append_records(path, b"[2]").read_bytes()
    for size in range(complete_bytes, len(content)):
        path.write_bytes(content[:size])
        assert read_records(path) == [b"[1]"]
        assert len(path.read_bytes()) == complete_bytes
        append_records(path, b"[3]")
        assert read_records(path) == [b"[1]", b"[3]"]


@pytest.mark.parametrize("following_bytes", [0, 4, 30])
def test_damage_is_an_error_and_the_file_stays_as_it_is(tmp_path: Path, following_bytes: int) -> None:
    path = append_records(tmp_path / "journal", b"[1]")
    offset = len(path.read_bytes())
    damaged = bytearray(
        append_records(path, b"[2]").read_bytes() + append_records(path, b"[3]").read_bytes()[:following_bytes]
    )
    damaged[offset + 21] ^= 1
    path.write_bytes(damaged)

    with pytest.raises(
        JournalDamaged, match=rf"journal is damaged at byte {offset}: .*journal verify.*--resume"
    ) as caught:
        read_records(path)

    assert (caught.value.offset, caught.value.exit_code) == (offset, 65)
    assert path.read_bytes() == damaged


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    path = append_records(tmp_path / "journal", b"[1]", run=2)

    with pytest.raises(JournalDamaged, match="it belongs to run 2 of the job, and this is run 1"):
        read_records(path)


def test_a_compacted_journal_starts_with_the_state(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal", run=1)
    list(journal.replay())
    journal.append([b"[1]"])
    journal.compact(b'{"state":1}')
    journal.append([b"[2]"])

    assert journal.events == 1
    journal.close()
    assert read_records(tmp_path / "journal") == [b'{"state":1}', b"[2]"]
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_records_larger_than_the_read_buffer_are_replayed(tmp_path: Path) -> None:
    large = b"[" + b"1" * (3 << 20) + b"]"

    assert read_records(append_records(tmp_path / "journal", large, b"[2]")) == [large, b"[2]"]


def test_reading_creates_no_journal(tmp_path: Path) -> None:
    assert read_records(tmp_path / "journal") == []
    assert list(tmp_path.iterdir()) == []


def test_files_of_an_earlier_run_on_a_claim_are_archived(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    append_records(directory.journal, b"[1]", run=1700000000)
    directory.events.write_text("{}\n")
    directory.result.write_text("{}")

    archive_earlier_run(directory, 1700000000)
    assert directory.journal.exists()
    archive_earlier_run(directory, 1700000009)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-1700000000"]
    assert len(list((tmp_path / "run-1700000000").iterdir())) == 3


def replay_ledger(path: Path, run: int = 1) -> bytes:
    journal, machine = FileJournal(path, run), StateMachine(job_spec())
    try:
        for _ in replay_journal(journal, machine):
            pass
    finally:
        journal.close()
    return machine.dump_ledger()


@given(bit=st.integers(0), size=st.integers(0))
def test_a_damaged_journal_never_leads_to_another_state(
    bit: int, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    events: list[Any] = [
        ev.MasterStarted(7),
        ev.ReplicaStarted("worker-0", 5),
        ev.ScaleRequested(2),
        ev.StopRequested(False, "enough"),
    ]
    states = []
    for event in events:
        append_records(path, codec.encode_event(event, 1.0))
        states.append(replay_ledger(path))
    content = path.read_bytes()

    path.write_bytes(content[: size % (len(content) + 1)])
    try:
        assert replay_ledger(path) in [StateMachine(job_spec()).dump_ledger(), *states]
    except JournalDamaged:
        assert size % (len(content) + 1) < 100, "only a torn beginning is an error"
    damaged = bytearray(content)
    damaged[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(damaged)
    with pytest.raises((JournalDamaged, JournalUnreadable)):
        replay_ledger(path)


@pytest.mark.parametrize(
    ("record", "record_name"),
    [
        (b'[1.0,"WorkerTeleported",["worker-0"]]', "the event .*WorkerTeleported"),
        (b'[1.0,"MasterStarted",[7,"a field that is newer"]]', "the event .*a field that is newer"),
        (b'{"phase":{"name":"pending"}}', "a whole state"),
    ],
)
def test_a_record_of_a_newer_version_is_an_error_that_names_the_version(
    tmp_path: Path, record: bytes, record_name: str
) -> None:
    path = tmp_path / "journal"
    encoder = FrameEncoder(JournalWriterInfo(run=1, version="99.1"))
    path.write_bytes(
        encoder.begin_stream() + encoder.encode_records([codec.encode_event(ev.MasterStarted(7), 1.0), record])
    )

    expected = rf"journal was written by ElasticDL 99\.1, and this is {__version__}, which cannot read {record_name}"
    with pytest.raises(JournalUnreadable, match=expected):
        replay_ledger(path)


def test_a_journal_names_the_version_of_each_writer(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    encoder = FrameEncoder(JournalWriterInfo(run=1, version="0.0.1"))
    path.write_bytes(encoder.begin_stream() + encoder.encode_records([b"[1]"]))
    append_records(path, b"[2]")

    journal = FileJournal(path, run=1)
    versions: list[Any] = [journal.writer and journal.writer.version for _ in journal.replay()]
    journal.close()

    assert versions == ["0.0.1", __version__]


STOPPED: Outcome = Phase.STOPPED


@pytest.mark.parametrize(
    "event",
    [
        ev.MasterStarted(7),
        ev.ReplicasListed((("worker-0", 5),), (ev.ReplicaExit("worker-1", 6, None, 9),)),
        ev.ReplicaExited(ev.ReplicaExit("worker-1", 6, 1, None)),
        ev.TerminalDetached(),
        ev.WorkerConnected(W, 1, "host", "a:1", "a:2", 3, -1, True, False),
        ev.RoundEntered(W, 4, 2, 10, 0.1),
        ev.ExchangeReceived(W, 1, (ev.LeaseReport(1, 2, True, "", (("accuracy", (1.0, 0.5), 3.0),)),), 2, (50,)),
        ev.RoundPlanned(2, (ev.RankAssignment(W, 0, 4, "worker-1"),), False, "joins"),
        ev.JobEnded(STOPPED, "enough", True),
    ],
)
def test_a_decoded_event_equals_the_encoded_one(event: ev.Event) -> None:
    decoded, happened_at = codec.decode_event(codec.encode_event(event, 12.5))

    assert (decoded, happened_at) == (event, 12.5)
    assert type(decoded) is type(event)
