"""Cuts while workers push, slots move, ps die and disks fail."""

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
from tests.integration.ps.fleet import TABLES, Ship, expected, restored, rows_of

Launch = Callable[..., Ship]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    ships: list[Ship] = []

    def begin(count: int, threads: int = 2) -> Ship:
        ships.append(Ship(tmp_path, count, threads))
        return ships[-1]

    yield begin
    for ship in ships:
        ship.close()


def test_a_push_is_wholly_in_a_cut_or_wholly_out_of_it(launch: Launch) -> None:
    ship, ids, stop = launch(1), list(range(300)), threading.Event()

    def train() -> None:
        while not stop.is_set():
            ship.push(ids)

    thread = threading.Thread(target=train)
    thread.start()
    paths = [ship.cut(step) for step in range(1, 12)]
    stop.set()
    thread.join()

    seen = []
    for path in paths:
        found, slot_map = restored(path, 2)
        counts = {row for row, _ in rows_of(*found.values()).get("sums", {}).values()}
        assert len(counts) <= 1, "every row has the same pushes"
        number = int(-next(iter(counts))[0]) if counts else 0
        seen.append(number)
        if number:
            before = rows_of(*found.values())
            ship.send(number, ids, found, slot_map)
            assert rows_of(*found.values()) == before
            ship.send(number + 1, ids, found, slot_map)
            assert rows_of(*found.values()) != before
            assert snapshot_files.read_chain(path).newest_files[0].applied_pushes == number
    assert seen == sorted(seen) and seen[-1] > seen[0]


def test_a_cut_waits_for_copies_elsewhere_and_nobody_waits_for_each_other(launch: Launch) -> None:
    ship, ids, stop = launch(2, threads=1), np.arange(300), threading.Event()
    lines = PsConnections(ship.fleet().addresses, "token", 30.0).open()
    create_backup(ship.holdings[PsId("ps-0")], PsId("ps-1"), lines)
    create_backup(ship.holdings[PsId("ps-1")], PsId("ps-0"), lines)
    lines.close()
    client = PsClient(ship.fleet(), "token", 30.0).open()
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
    paths = [ship.cut(step) for step in range(1, 8)]
    stop.set()
    thread.join()
    client.close()

    found, _ = restored(paths[-1], 3)
    assert {len(values) for values in rows_of(*found.values()).values()} == {300}
    assert pushed


def test_the_next_cut_does_not_wait_for_the_disk(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    ship, may_write = launch(2), threading.Event()
    ship.push(range(2000))
    ship.cut(1)
    ship.push([1])
    write = snapshot_files.write_snapshot

    def slowly(directory: AnyPath, name: str, held: snapshot_files.SnapshotRows) -> manifest.FileEntry:
        assert may_write.wait(60)
        return write(directory, name, held)

    monkeypatch.setattr(snapshot_files, "write_snapshot", slowly)
    first, wanted = ship.begin(2), rows_of(*ship.holdings.values())
    writing = threading.Thread(target=ship.finish, args=(first,))
    writing.start()
    ship.push([2])
    second, later = ship.begin(3), rows_of(*ship.holdings.values())
    may_write.set()
    writing.join()
    ship.push([3])
    path = ship.finish(second)

    assert rows_of(*restored(ship.directory / manifest.checkpoint_name(2), 1)[0].values()) == wanted
    assert rows_of(*restored(path, 3)[0].values()) == later


def test_a_checkpoint_shares_what_did_not_change_and_stays_when_others_go(launch: Launch) -> None:
    ship = launch(2)
    ship.push(range(3000))
    first = ship.cut(1)
    ship.push([1, 2, 3])
    second = ship.cut(2)

    shared = [path.name for path in (first / "ps").glob("*.safetensors") if (second / "ps" / path.name).exists()]
    assert len(shared) == 2
    assert all(os.path.samefile(first / "ps" / name, second / "ps" / name) for name in shared)
    sizes = {path.name: path.stat().st_size for path in (second / "ps").glob("*.safetensors")}
    assert sizes["ps-0-2.safetensors"] < sizes["ps-0-1.safetensors"] / 2


def test_checkpoints_in_a_row_share_no_file_and_each_costs_what_changed(launch: Launch) -> None:
    ship = launch(2)
    ship.push(range(3000))
    paths, rows = [], []
    for step in range(1, 8):
        ship.push([step])
        begun = ship.cutter.begin(step, choose_base(ship.directory, 3, is_another_under_way=False))
        ship.newest = find_base(ship.directory, begun)
        paths.append(ship.finish(begun))
        rows.append(rows_of(*ship.holdings.values()))

    files = [{path.stat().st_ino for path in (one / "ps").glob("*.safetensors")} for one in paths]
    assert all(some.isdisjoint(others) for some, others in pairwise(files))
    assert all(some & others for some, others in zip(files, files[2:], strict=False)), "those after the first two build"
    assert [rows_of(*restored(path, 3)[0].values()) for path in paths] == rows


def test_a_checkpoint_begun_while_another_is_written_shares_no_file_with_it(launch: Launch) -> None:
    ship = launch(2)
    ship.push(range(3000))
    for step in (1, 2):
        begun = ship.cutter.begin(step, choose_base(ship.directory, 3, is_another_under_way=False))
        ship.newest = find_base(ship.directory, begun)
        ship.finish(begun)
    under_way = ship.cutter.begin(3, choose_base(ship.directory, 3, is_another_under_way=False))
    begun = ship.cutter.begin(4, choose_base(ship.directory, 3, is_another_under_way=True))
    paths = []
    for one in (under_way, begun):
        ship.newest = find_base(ship.directory, one)
        paths.append(ship.finish(one))

    third, fourth = ({path.stat().st_ino for path in (one / "ps").glob("*.safetensors")} for one in paths)
    assert len(third) == len(fourth) == 4 and third.isdisjoint(fourth)


def test_where_one_checkpoint_is_kept_each_builds_upon_the_one_before(launch: Launch) -> None:
    ship = launch(1)
    assert choose_base(ship.directory, 1, is_another_under_way=False) is None
    ship.cut(1)
    path = ship.cut(2)

    assert choose_base(ship.directory, 1, is_another_under_way=False) == path
    assert choose_base(ship.directory, 3, is_another_under_way=False) is None, "both share a file"


def test_without_links_files_are_copied(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    ship = launch(1)
    ship.push(range(3000))
    ship.cut(1)
    second = ship.cut(2)

    assert not os.path.samefile(
        ship.directory / manifest.checkpoint_name(1) / "ps" / "ps-0-1.safetensors", second / "ps"
    )
    assert rows_of(*restored(second, 3)[0].values()) == rows_of(*ship.holdings.values())


def test_a_cut_that_misses_slots_is_made_again(launch: Launch) -> None:
    ship = launch(2)
    ship.push(range(500))
    ship.cut(1)
    maps = iter([ship.map._replace(owner=(PsId("ps-0"),) * 1024)])  # once, one ps of the two is not known yet
    cutter = SnapshotCoordinator(lambda: ship.fleet()._replace(slot_map=next(maps, ship.map)), "token", 30.0).open()

    begun = cutter.begin(2, ship.newest)
    cutter.close()

    assert list(begun.replies) == ship.map.members


def test_no_cut_without_the_slots_of_a_ps_that_is_lost(launch: Launch) -> None:
    ship = launch(2)
    fleet = ship.fleet()
    addresses = {PsId("ps-0"): fleet.addresses[PsId("ps-0")]}
    cutter = SnapshotCoordinator(
        lambda: fleet._replace(addresses=addresses, lost=frozenset([PsId("ps-1")])), "token", 0.3
    ).open()

    with pytest.raises(PsUnreachable, match="ps-1 is lost: no snapshot without its slots"):
        cutter.begin(1, None)
    cutter.close()


def test_a_ps_that_dies_while_it_writes_leaves_the_checkpoint_before(launch: Launch) -> None:
    ship = launch(2)
    ship.push(range(500))
    first = ship.cut(1)
    ship.cutter.close()
    ship.cutter = SnapshotCoordinator(ship.fleet, "token", 0.5).open()
    begun = ship.begin(2)
    ship.servers[PsId("ps-1")].close()

    with pytest.raises(PsUnreachable, match="ps-1: no answer"):
        ship.finish(begun)

    assert manifest.list_checkpoints(ship.directory) == [first]
    del ship.servers[PsId("ps-1")]
    assert not list(ship.directory.glob(staging.STAGING_PREFIX + "*"))


def test_a_place_that_cannot_be_written_fails_the_checkpoint_by_name(launch: Launch, tmp_path: Path) -> None:
    ship = launch(1)
    begun = ship.begin(1)
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "ps").mkdir()
    (tmp_path / "place" / "ps" / "ps-0-1.safetensors").mkdir()

    with pytest.raises(FileExistsError):
        ship.cutter.finish(begun, tmp_path / "place", None, tmp_path / "place")
    (tmp_path / "place" / "ps" / "ps-0-1.safetensors").rmdir()
    (tmp_path / "place" / "ps").rmdir()
    ship.keepers[PsId("ps-0")].close()
    with pytest.raises(CheckpointFailed, match="ps-0"):
        ship.cutter.finish(begun, tmp_path / "place", None, tmp_path / "place")


def test_a_checkpoint_whose_files_are_torn_is_not_built_upon(launch: Launch) -> None:
    ship = launch(1)
    ship.push(range(500))
    first = ship.cut(1)
    torn = first / "ps" / "ps-0-1.safetensors"
    torn.write_bytes(torn.read_bytes()[:1000])
    ship.push([3])

    second = ship.cut(2)

    assert [path.name for path in (second / "ps").glob("*.safetensors")] == ["ps-0-1.safetensors"]
    assert rows_of(*restored(second, 1)[0].values()) == rows_of(*ship.holdings.values())


def test_a_corrupt_checkpoint_is_passed_over_and_the_one_before_used(
    launch: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    ship = launch(2)
    ship.push(range(500))
    first, pushes = ship.cut(1), dict(expected(ship.pushes))
    ship.push([3])
    second = ship.cut(2)
    own = second / "ps" / "ps-1-2.safetensors"
    own.write_bytes(own.read_bytes()[:-1] + b"?")

    assert manifest.find_newest(ship.directory) == first
    assert "ps-1-2.safetensors is corrupt" in caplog.text
    assert set(rows_of(*restored(first, 3)[0].values())["sums"]) == set(pushes["sums"])
    (first / manifest.MANIFEST_FILE).unlink()
    with pytest.raises(CheckpointCorrupt, match="none of the checkpoints"):
        manifest.find_newest(ship.directory)


def test_a_cut_that_began_with_another_checkpoint_is_refused(launch: Launch, tmp_path: Path) -> None:
    ship = launch(1)
    ship.push(range(100))
    ship.cut(1)
    begun = ship.begin(2)
    (tmp_path / "place").mkdir()

    with pytest.raises(CheckpointFailed, match="is not built upon the base of this snapshot"):
        ship.cutter.finish(begun, tmp_path / "place", None, tmp_path / "place")
