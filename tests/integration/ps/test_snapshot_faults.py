"""Snapshots while workers push, slots move, ps die and disks fail."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.checkpoint import manifest, staging
from elasticdl.errors import CheckpointCorrupt, CheckpointFailed
from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.server.slot_transfer import create_backup
from elasticdl.ps.snapshots import snapshot_files
from elasticdl.ps.snapshots.coordinator import SnapshotCoordinator, choose_base, find_base
from elasticdl.ps.wire.connections import PsConnections, PsUnreachable
from elasticdl.spec import PsId
from elasticdl.storage.paths import AnyPath
from tests.integration.ps.fleet import TABLES, LocalFleet, expected, restore_rows, rows_of

Launch = Callable[..., LocalFleet]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    fleets: list[LocalFleet] = []

    def begin(count: int, threads: int = 2) -> LocalFleet:
        fleets.append(LocalFleet(tmp_path, count, threads))
        return fleets[-1]

    yield begin
    for fleet in fleets:
        fleet.close()


def test_a_push_is_completely_in_a_snapshot_or_not_at_all(launch: Launch) -> None:
    fleet, ids, stop = launch(1), list(range(300)), threading.Event()

    def train() -> None:
        while not stop.is_set():
            fleet.push(ids)

    thread = threading.Thread(target=train)
    thread.start()
    paths = [fleet.write_checkpoint(step) for step in range(1, 12)]
    stop.set()
    thread.join()

    seen = []
    for path in paths:
        holdings, slot_map = restore_rows(path, 2)
        counts = {row for row, _ in rows_of(*holdings.values()).get("sums", {}).values()}
        assert len(counts) <= 1, "every row has the same pushes"
        number = int(-next(iter(counts))[0]) if counts else 0
        seen.append(number)
        if number:
            before = rows_of(*holdings.values())
            fleet.send(number, ids, holdings, slot_map)
            assert rows_of(*holdings.values()) == before
            fleet.send(number + 1, ids, holdings, slot_map)
            assert rows_of(*holdings.values()) != before
            assert snapshot_files.read_chain(path).newest_files[0].applied_pushes == number
    assert seen == sorted(seen) and seen[-1] > seen[0]


def test_a_snapshot_waits_for_backups_without_a_deadlock(launch: Launch) -> None:
    fleet, ids, stop = launch(2, threads=1), np.arange(300), threading.Event()
    connections = PsConnections(fleet.view().addresses, "token", 30.0).open()
    create_backup(fleet.holdings[PsId("ps-0")], PsId("ps-1"), connections)
    create_backup(fleet.holdings[PsId("ps-1")], PsId("ps-0"), connections)
    connections.close()
    client = PsClient(fleet.view(), "token", 30.0).open()
    client.declare(TABLES)
    pushed: list[Any] = []

    def train() -> None:
        plans = {"sums": client.plan(ids)}
        while not stop.is_set():
            number = len(pushed) + 1
            sums = {"sums": np.ones((300, 2), np.float32)}
            assert client.finish_push(client.begin_push(plans, sums, sender=1, number=number, rate=1.0, step=number))
            pushed.append(number)

    thread = threading.Thread(target=train)
    thread.start()
    paths = [fleet.write_checkpoint(step) for step in range(1, 8)]
    stop.set()
    thread.join()
    client.close()

    holdings, _ = restore_rows(paths[-1], 3)
    assert {len(values) for values in rows_of(*holdings.values()).values()} == {300}
    assert pushed


def test_the_next_snapshot_does_not_wait_for_the_disk(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, may_write = launch(2), threading.Event()
    fleet.push(range(2000))
    fleet.write_checkpoint(1)
    fleet.push([1])
    write = snapshot_files.write_snapshot

    def slowly(directory: AnyPath, name: str, held: snapshot_files.SnapshotRows) -> manifest.FileEntry:
        assert may_write.wait(60)
        return write(directory, name, held)

    monkeypatch.setattr(snapshot_files, "write_snapshot", slowly)
    first, expected = fleet.begin(2), rows_of(*fleet.holdings.values())
    writing = threading.Thread(target=fleet.finish, args=(first,))
    writing.start()
    fleet.push([2])
    second, later = fleet.begin(3), rows_of(*fleet.holdings.values())
    may_write.set()
    writing.join()
    fleet.push([3])
    path = fleet.finish(second)

    assert rows_of(*restore_rows(fleet.directory / manifest.checkpoint_name(2), 1)[0].values()) == expected
    assert rows_of(*restore_rows(path, 3)[0].values()) == later


def test_a_checkpoint_links_the_files_of_its_base_and_writes_only_changed_rows(launch: Launch) -> None:
    fleet = launch(2)
    fleet.push(range(3000))
    first = fleet.write_checkpoint(1)
    fleet.push([1, 2, 3])
    second = fleet.write_checkpoint(2)

    shared = [path.name for path in (first / "ps").glob("*.safetensors") if (second / "ps" / path.name).exists()]
    assert len(shared) == 2
    assert all(os.path.samefile(first / "ps" / name, second / "ps" / name) for name in shared)
    sizes = {path.name: path.stat().st_size for path in (second / "ps").glob("*.safetensors")}
    assert sizes["ps-0-2.safetensors"] < sizes["ps-0-1.safetensors"] / 2


def test_checkpoints_in_a_row_share_no_file_and_each_costs_what_changed(launch: Launch) -> None:
    fleet = launch(2)
    fleet.push(range(3000))
    paths, rows = [], []
    for step in range(1, 8):
        fleet.push([step])
        snapshot = fleet.coordinator.begin(step, choose_base(fleet.directory, 3, is_another_under_way=False))
        fleet.newest = find_base(fleet.directory, snapshot)
        paths.append(fleet.finish(snapshot))
        rows.append(rows_of(*fleet.holdings.values()))

    files = [{path.stat().st_ino for path in (checkpoint / "ps").glob("*.safetensors")} for checkpoint in paths]
    assert all(inodes.isdisjoint(other_inodes) for inodes, other_inodes in pairwise(files))
    assert all(inodes & other_inodes for inodes, other_inodes in zip(files, files[2:], strict=False)), (
        "those after the first two build"
    )
    assert [rows_of(*restore_rows(path, 3)[0].values()) for path in paths] == rows


def test_a_checkpoint_begun_while_another_is_written_shares_no_file_with_it(launch: Launch) -> None:
    fleet = launch(2)
    fleet.push(range(3000))
    for step in (1, 2):
        snapshot = fleet.coordinator.begin(step, choose_base(fleet.directory, 3, is_another_under_way=False))
        fleet.newest = find_base(fleet.directory, snapshot)
        fleet.finish(snapshot)
    under_way = fleet.coordinator.begin(3, choose_base(fleet.directory, 3, is_another_under_way=False))
    snapshot = fleet.coordinator.begin(4, choose_base(fleet.directory, 3, is_another_under_way=True))
    paths = []
    for checkpoint in (under_way, snapshot):
        fleet.newest = find_base(fleet.directory, checkpoint)
        paths.append(fleet.finish(checkpoint))

    third, fourth = ({path.stat().st_ino for path in (checkpoint / "ps").glob("*.safetensors")} for checkpoint in paths)
    assert len(third) == len(fourth) == 4 and third.isdisjoint(fourth)


def test_if_one_checkpoint_is_kept_each_builds_upon_the_previous_one(launch: Launch) -> None:
    fleet = launch(1)
    assert choose_base(fleet.directory, 1, is_another_under_way=False) is None
    fleet.write_checkpoint(1)
    path = fleet.write_checkpoint(2)

    assert choose_base(fleet.directory, 1, is_another_under_way=False) == path
    assert choose_base(fleet.directory, 3, is_another_under_way=False) is None, "both share a file"


def test_without_links_files_are_copied(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    fleet = launch(1)
    fleet.push(range(3000))
    fleet.write_checkpoint(1)
    second = fleet.write_checkpoint(2)

    assert not os.path.samefile(
        fleet.directory / manifest.checkpoint_name(1) / "ps" / "ps-0-1.safetensors", second / "ps"
    )
    assert rows_of(*restore_rows(second, 3)[0].values()) == rows_of(*fleet.holdings.values())


def test_a_snapshot_that_misses_slots_is_taken_again(launch: Launch) -> None:
    fleet = launch(2)
    fleet.push(range(500))
    fleet.write_checkpoint(1)
    maps = iter([fleet.map._replace(owner=(PsId("ps-0"),) * 1024)])  # once, one ps of the two is not known yet
    coordinator = SnapshotCoordinator(
        lambda: fleet.view()._replace(slot_map=next(maps, fleet.map)), "token", 30.0
    ).open()

    snapshot = coordinator.begin(2, fleet.newest)
    coordinator.close()

    assert list(snapshot.replies) == fleet.map.members


def test_there_is_no_snapshot_without_the_slots_of_a_lost_ps(launch: Launch) -> None:
    fleet = launch(2)
    view = fleet.view()
    addresses = {PsId("ps-0"): view.addresses[PsId("ps-0")]}
    coordinator = SnapshotCoordinator(
        lambda: view._replace(addresses=addresses, lost=frozenset([PsId("ps-1")])), "token", 0.3
    ).open()

    with pytest.raises(PsUnreachable, match="ps-1 is lost: no snapshot without its slots"):
        coordinator.begin(1, None)
    coordinator.close()


def test_a_ps_that_dies_while_it_writes_leaves_the_checkpoint_before(launch: Launch) -> None:
    fleet = launch(2)
    fleet.push(range(500))
    first = fleet.write_checkpoint(1)
    fleet.coordinator.close()
    fleet.coordinator = SnapshotCoordinator(fleet.view, "token", 0.5).open()
    snapshot = fleet.begin(2)
    fleet.servers[PsId("ps-1")].close()

    with pytest.raises(PsUnreachable, match="ps-1: no answer"):
        fleet.finish(snapshot)

    assert manifest.list_checkpoints(fleet.directory) == [first]
    del fleet.servers[PsId("ps-1")]
    assert not list(fleet.directory.glob(staging.STAGING_PREFIX + "*"))


def test_a_directory_that_cannot_be_written_fails_the_checkpoint_and_names_the_ps(
    launch: Launch, tmp_path: Path
) -> None:
    fleet = launch(1)
    snapshot = fleet.begin(1)
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "ps").mkdir()
    (tmp_path / "staging" / "ps" / "ps-0-1.safetensors").mkdir()

    with pytest.raises(FileExistsError):
        fleet.coordinator.finish(snapshot, tmp_path / "staging", None, tmp_path / "staging")
    (tmp_path / "staging" / "ps" / "ps-0-1.safetensors").rmdir()
    (tmp_path / "staging" / "ps").rmdir()
    fleet.writers[PsId("ps-0")].close()
    with pytest.raises(CheckpointFailed, match="ps-0"):
        fleet.coordinator.finish(snapshot, tmp_path / "staging", None, tmp_path / "staging")


def test_no_snapshot_builds_upon_a_checkpoint_with_torn_files(launch: Launch) -> None:
    fleet = launch(1)
    fleet.push(range(500))
    first = fleet.write_checkpoint(1)
    torn = first / "ps" / "ps-0-1.safetensors"
    torn.write_bytes(torn.read_bytes()[:1000])
    fleet.push([3])

    second = fleet.write_checkpoint(2)

    assert [path.name for path in (second / "ps").glob("*.safetensors")] == ["ps-0-1.safetensors"]
    assert rows_of(*restore_rows(second, 1)[0].values()) == rows_of(*fleet.holdings.values())


def test_a_corrupt_checkpoint_is_skipped_and_the_previous_one_used(
    launch: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = launch(2)
    fleet.push(range(500))
    first, pushes = fleet.write_checkpoint(1), dict(expected(fleet.pushes))
    fleet.push([3])
    second = fleet.write_checkpoint(2)
    own = second / "ps" / "ps-1-2.safetensors"
    own.write_bytes(own.read_bytes()[:-1] + b"?")

    assert manifest.find_newest(fleet.directory) == first
    assert "ps-1-2.safetensors is corrupt" in caplog.text
    assert set(rows_of(*restore_rows(first, 3)[0].values())["sums"]) == set(pushes["sums"])
    (first / manifest.MANIFEST_FILE).unlink()
    with pytest.raises(CheckpointCorrupt, match="none of the checkpoints"):
        manifest.find_newest(fleet.directory)


def test_a_snapshot_with_another_base_is_refused(launch: Launch, tmp_path: Path) -> None:
    fleet = launch(1)
    fleet.push(range(100))
    fleet.write_checkpoint(1)
    snapshot = fleet.begin(2)
    (tmp_path / "staging").mkdir()

    with pytest.raises(CheckpointFailed, match="is not built upon the base of this snapshot"):
        fleet.coordinator.finish(snapshot, tmp_path / "staging", None, tmp_path / "staging")
