"""The free resources of nodes while a plan is made."""

from __future__ import annotations

from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.snapshot import NodeInfo
from tests.unit.scheduler.cases import job, nodes


def test_what_is_taken_is_gone_and_comes_back() -> None:
    room = FreeResources(nodes(4, 4))

    room.allocate(job("a", devices=2), {"n0": 2, "n1": 1})
    assert (room.free_devices, room.workers_that_fit(job("b"), "n0"), room.workers_that_fit(job("b"), "n1")) == (
        2,
        0,
        2,
    )

    room.release(job("a", devices=2), {"n0": 2})
    assert room.free_devices == 6


def test_a_worker_takes_all_its_devices_on_one_node() -> None:
    assert FreeResources(nodes(3, 3)).total_workers_that_fit(job("a", devices=2)) == 2


def test_a_node_fits_as_many_as_its_scarcest_resource() -> None:
    room = FreeResources([NodeInfo("n0", 8, resources={"memory": 10.0}), NodeInfo("n1", 8)])
    greedy = job("a", request={"memory": 4.0})

    assert (
        room.workers_that_fit(greedy, "n0"),
        room.workers_that_fit(greedy, "n1"),
        room.total_workers_that_fit(greedy),
    ) == (2, 0, 2)
    room.allocate(greedy, {"n0": 1})
    assert room.workers_that_fit(greedy, "n0") == 1


def test_another_kind_fits_nothing() -> None:
    room = FreeResources([NodeInfo("n0", 2, "a"), NodeInfo("n1", 3, "b")])

    assert room.workers_that_fit(job("j", kinds=("b",)), "n0") == 0
    assert [room.total_workers_that_fit(job("j", kinds=kinds)) for kinds in ((), ("a",), ("b",), ("c",))] == [
        5,
        2,
        3,
        0,
    ]


def test_tightest_has_the_least_left_and_emptiest_the_most() -> None:
    room = FreeResources(nodes(8, 2, 4))

    assert list(room.best_fit_nodes(job("a"), 3)) == ["n2", "n0"]
    assert list(room.emptiest_nodes(job("a"))) == ["n0", "n2", "n1"]


def test_the_emptiest_is_where_most_workers_fit_not_where_most_devices_are() -> None:
    room = FreeResources([NodeInfo("n0", 8, resources={"memory": 1.0}), NodeInfo("n1", 4, resources={"memory": 8.0})])

    assert list(room.emptiest_nodes(job("a", request={"memory": 1.0}))) == ["n1", "n0"]


def test_shares_of_a_device_add_up_to_it() -> None:
    room = FreeResources(nodes(1))
    room.allocate(job("a"), {"n0": 1}, 0.7)

    assert room.workers_that_fit(job("b"), "n0") == 0
    assert room.workers_that_fit(job("b"), "n0", share=0.3) == 1
    assert [node.devices for node in room.remaining_nodes()] == [0]


def test_the_order_of_the_nodes_given_does_not_matter() -> None:
    cluster = nodes(*([4] * 12))

    assert list(FreeResources(cluster).emptiest_nodes(job("a"))) == list(
        FreeResources(reversed(cluster)).emptiest_nodes(job("a"))
    )
    assert list(FreeResources(cluster).nodes)[:3] == ["n0", "n1", "n2"]


def test_an_overfull_node_has_nothing_left() -> None:
    room = FreeResources(nodes(1))
    room.allocate(job("a"), {"n0": 3})

    assert room.free_devices == 0 and [node.devices for node in room.remaining_nodes()] == [0]
