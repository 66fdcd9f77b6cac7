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


def written(path: Path, *payloads: bytes, run: int = 1) -> Path:
    journal = FileJournal(path, run)
    list(journal.replay())
    journal.append(list(payloads))
    journal.close()
    return path


def read(path: Path) -> list[bytes]:
    journal = FileJournal(path, run=1)
    try:
        return list(journal.replay())
    finally:
        journal.close()


def test_what_was_appended_is_replayed_in_order(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", b"[1]", b"[2]")
    written(path, b"[3]")

    assert read(path) == [b"[1]", b"[2]", b"[3]"]


def test_a_torn_end_is_cut_off_and_the_journal_goes_on(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", b"[1]")
    whole = len(path.read_bytes())
    content = written(path, b"[2]").read_bytes()
    for size in range(whole, len(content)):
        path.write_bytes(content[:size])
        assert read(path) == [b"[1]"]
        assert len(path.read_bytes()) == whole
        written(path, b"[3]")
        assert read(path) == [b"[1]", b"[3]"]


@pytest.mark.parametrize("kept", [0, 4, 30])
def test_damage_is_told_and_the_file_kept_as_it_is(tmp_path: Path, kept: int) -> None:
    path = written(tmp_path / "journal", b"[1]")
    at = len(path.read_bytes())
    damaged = bytearray(written(path, b"[2]").read_bytes() + written(path, b"[3]").read_bytes()[:kept])
    damaged[at + 21] ^= 1
    path.write_bytes(damaged)

    with pytest.raises(JournalDamaged, match=rf"journal is damaged at byte {at}: .*journal verify.*--resume") as found:
        read(path)

    assert (found.value.offset, found.value.exit_code) == (at, 65)
    assert path.read_bytes() == damaged


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", b"[1]", run=2)

    with pytest.raises(JournalDamaged, match="it is of run 2 of the job, and this is run 1"):
        read(path)


def test_a_compacted_journal_begins_with_the_state(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal", run=1)
    list(journal.replay())
    journal.append([b"[1]"])
    journal.compact(b'{"state":1}')
    journal.append([b"[2]"])

    assert journal.events == 1
    journal.close()
    assert read(tmp_path / "journal") == [b'{"state":1}', b"[2]"]
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_records_larger_than_a_piece_of_reading_survive(tmp_path: Path) -> None:
    large = b"[" + b"1" * (3 << 20) + b"]"

    assert read(written(tmp_path / "journal", large, b"[2]")) == [large, b"[2]"]


def test_who_only_reads_makes_no_journal(tmp_path: Path) -> None:
    assert read(tmp_path / "journal") == []
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_run_left_on_a_claim_is_set_aside(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    written(directory.journal, b"[1]", run=1700000000)
    directory.events.write_text("{}\n")
    directory.result.write_text("{}")

    archive_earlier_run(directory, 1700000000)
    assert directory.journal.exists()
    archive_earlier_run(directory, 1700000009)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-1700000000"]
    assert len(list((tmp_path / "run-1700000000").iterdir())) == 3


def replayed(path: Path, run: int = 1) -> bytes:
    journal, state = FileJournal(path, run), StateMachine(job_spec())
    try:
        for _ in replay_journal(journal, state):
            pass
    finally:
        journal.close()
    return state.dump_ledger()


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
        written(path, codec.encode_event(event, 1.0))
        states.append(replayed(path))
    content = path.read_bytes()

    path.write_bytes(content[: size % (len(content) + 1)])
    try:
        assert replayed(path) in [StateMachine(job_spec()).dump_ledger(), *states]
    except JournalDamaged:
        assert size % (len(content) + 1) < 100, "the beginning alone is refused"
    damaged = bytearray(content)
    damaged[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(damaged)
    with pytest.raises((JournalDamaged, JournalUnreadable)):
        replayed(path)


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (b'[1.0,"WorkerTeleported",["worker-0"]]', "the event .*WorkerTeleported"),
        (b'[1.0,"MasterStarted",[7,"a field that is newer"]]', "the event .*a field that is newer"),
        (b'{"phase":{"name":"pending"}}', "a whole state"),
    ],
)
def test_what_a_newer_version_wrote_names_it(tmp_path: Path, record: bytes, what: str) -> None:
    path = tmp_path / "journal"
    encoder = FrameEncoder(JournalWriterInfo(run=1, version="99.1"))
    path.write_bytes(
        encoder.begin_stream() + encoder.encode_records([codec.encode_event(ev.MasterStarted(7), 1.0), record])
    )

    expected = rf"journal was written by ElasticDL 99\.1, and this is {__version__}, which cannot read {what}"
    with pytest.raises(JournalUnreadable, match=expected):
        replayed(path)


def test_whoever_goes_on_says_which_version_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    encoder = FrameEncoder(JournalWriterInfo(run=1, version="0.0.1"))
    path.write_bytes(encoder.begin_stream() + encoder.encode_records([b"[1]"]))
    written(path, b"[2]")

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
def test_every_event_comes_back_as_it_was(event: ev.Event) -> None:
    loaded, now = codec.decode_event(codec.encode_event(event, 12.5))

    assert (loaded, now) == (event, 12.5)
    assert type(loaded) is type(event)
