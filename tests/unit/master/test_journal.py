from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.master import codec
from elasticdl.master import events as ev
from elasticdl.master.journal import Journal, frame
from elasticdl.master.phase import Outcome
from elasticdl.spec import WorkerId

W = WorkerId("worker-0")


def written(path: Path, *payloads: bytes) -> Path:
    journal = Journal(path)
    list(journal.replay())
    journal.append(list(payloads))
    journal.close()
    return path


def read(path: Path) -> list[bytes]:
    journal = Journal(path)
    found = list(journal.replay())
    journal.close()
    return found


def test_what_was_appended_is_replayed_in_order(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", b"[1]", b"[2]")
    written(path, b"[3]")

    assert read(path) == [b"[1]", b"[2]", b"[3]"]


@pytest.mark.parametrize("kept", range(len(frame(b"[2]"))))
def test_a_torn_tail_is_cut_off_and_the_journal_goes_on(tmp_path: Path, kept: int) -> None:
    path = written(tmp_path / "journal", b"[1]")
    path.write_bytes(path.read_bytes() + frame(b"[2]")[:kept])

    assert read(path) == [b"[1]"]
    written(path, b"[3]")
    assert read(path) == [b"[1]", b"[3]"]


def test_nothing_after_a_damaged_record_is_believed(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", b"[1]", b"[2]", b"[3]")
    content = bytearray(path.read_bytes())
    content[len(frame(b"[1]")) + 9] ^= 1
    path.write_bytes(bytes(content))

    assert read(path) == [b"[1]"]


def test_a_compacted_journal_begins_with_the_state(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
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


STOPPED: Outcome = "stopped"


@pytest.mark.parametrize(
    "event",
    [
        ev.MasterStarted(7),
        ev.ReplicasListed((("worker-0", 5),), (ev.Exit("worker-1", 6, None, 9),)),
        ev.ReplicaExited(ev.Exit("worker-1", 6, 1, None)),
        ev.Detached(),
        ev.WorkerGreeted(W, 1, "host", "a:1", "a:2", 3, -1, True, False),
        ev.RoundEntered(W, 4, 2, 10, 0.1),
        ev.Exchanged(W, 1, (ev.LeaseReport(1, 2, True, "", (("accuracy", (1.0, 0.5), 3.0),)),), 2, (50,)),
        ev.RoundPlanned(2, (ev.Seat(W, 0, 4, "worker-1"),), False, "joins"),
        ev.JobEnded(STOPPED, "enough", True),
    ],
)
def test_every_event_comes_back_as_it_was(event: ev.Event) -> None:
    loaded, now = codec.load(codec.dump(event, 12.5))

    assert (loaded, now) == (event, 12.5)
    assert type(loaded) is type(event)
