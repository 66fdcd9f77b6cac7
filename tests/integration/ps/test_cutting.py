"""Cuts while workers push, slots move, ps die and disks fail."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.checkpoint import manifest, staging
from elasticdl.errors import CheckpointCorrupt, CheckpointFailed
from elasticdl.ps import cuts
from elasticdl.ps.cutting import Cutter
from elasticdl.ps.line import PsUnreachable
from elasticdl.spec import PsId
from tests.integration.ps.fleet import Ship, expected, restored, rows_of

Launch = Callable[..., Ship]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    ships: list[Ship] = []

    def begin(count: int) -> Ship:
        ships.append(Ship(tmp_path, count))
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
            assert cuts.chain_of(path).newest[0].applied == number
    assert seen == sorted(seen) and seen[-1] > seen[0]


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


def test_without_links_files_are_copied(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    ship = launch(1)
    ship.push(range(3000))
    ship.cut(1)
    second = ship.cut(2)

    assert not os.path.samefile(ship.directory / manifest.name_of(1) / "ps" / "ps-0-1.safetensors", second / "ps")
    assert rows_of(*restored(second, 3)[0].values()) == rows_of(*ship.holdings.values())


def test_a_cut_that_misses_slots_is_made_again(launch: Launch) -> None:
    ship = launch(2)
    ship.push(range(500))
    ship.cut(1)
    maps = iter([ship.map._replace(owner=(PsId("ps-0"),) * 1024)])  # once, one ps of the two is not known yet
    cutter = Cutter(lambda: ship.fleet()._replace(map=next(maps, ship.map)), "token", 30.0)

    begun = cutter.begin(2, ship.newest)
    cutter.close()

    assert list(begun.taken) == ship.map.members


def test_no_cut_without_the_slots_of_a_ps_that_is_lost(launch: Launch) -> None:
    ship = launch(2)
    fleet = ship.fleet()
    addresses = {PsId("ps-0"): fleet.addresses[PsId("ps-0")]}
    cutter = Cutter(lambda: fleet._replace(addresses=addresses, lost=frozenset([PsId("ps-1")])), "token", 0.3)

    with pytest.raises(PsUnreachable, match="ps-1 is lost: no cut without its slots"):
        cutter.begin(1, None)
    cutter.close()


def test_a_ps_that_dies_while_it_writes_leaves_the_checkpoint_before(launch: Launch) -> None:
    ship = launch(2)
    ship.push(range(500))
    first = ship.cut(1)
    ship.cutter.close()
    ship.cutter = Cutter(ship.fleet, "token", 0.5)
    begun = ship.begin(2)
    ship.servers[PsId("ps-1")].close()

    with pytest.raises(PsUnreachable, match="ps-1: no answer"):
        ship.finish(begun)

    assert manifest.checkpoints(ship.directory) == [first]
    del ship.servers[PsId("ps-1")]
    assert not list(ship.directory.glob(staging.PREFIX + "*"))


def test_a_place_that_cannot_be_written_fails_the_checkpoint_by_name(launch: Launch, tmp_path: Path) -> None:
    ship = launch(1)
    begun = ship.begin(1)
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "ps").mkdir()
    (tmp_path / "place" / "ps" / "ps-0-1.safetensors").mkdir()

    with pytest.raises(FileExistsError):
        ship.cutter.finish(begun, tmp_path / "place", None)
    (tmp_path / "place" / "ps" / "ps-0-1.safetensors").rmdir()
    (tmp_path / "place" / "ps").rmdir()
    ship.keepers[PsId("ps-0")].close()
    with pytest.raises(CheckpointFailed, match="ps-0"):
        ship.cutter.finish(begun, tmp_path / "place", None)


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

    assert cuts.newest(ship.directory) == first
    assert "ps-1-2.safetensors is corrupt" in caplog.text
    assert set(rows_of(*restored(first, 3)[0].values())["sums"]) == set(pushes["sums"])
    (first / manifest.FILE).unlink()
    with pytest.raises(CheckpointCorrupt, match="none of the checkpoints"):
        cuts.newest(ship.directory)


def test_a_cut_that_began_with_another_checkpoint_is_refused(launch: Launch, tmp_path: Path) -> None:
    ship = launch(1)
    ship.push(range(100))
    ship.cut(1)
    begun = ship.begin(2)
    (tmp_path / "place").mkdir()

    with pytest.raises(CheckpointFailed, match="is not built upon the checkpoint this cut began with"):
        ship.cutter.finish(begun, tmp_path / "place", None)
