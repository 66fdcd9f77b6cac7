"""Clusters, failures and stragglers are parsed from options."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest

from elasticdl.errors import SpecError
from elasticdl.sim import cluster


def test_nodes_have_kinds_and_racks_one_after_another() -> None:
    nodes = cluster.parse_nodes(0, 4, "a100:1x8,t4:3", 2)

    assert [(node.name, node.devices, node.kind, node.rack) for node in nodes] == [
        ("node-00", 8, "a100", "rack-0"),
        ("node-01", 4, "t4", "rack-0"),
        ("node-02", 4, "t4", "rack-1"),
        ("node-03", 4, "t4", "rack-1"),
    ]


@pytest.mark.parametrize(
    ("count", "kinds", "racks", "complaint"),
    [
        (3, "a:1,b:1", 0, "has 2 nodes, --nodes says 3"),
        (0, "a", 0, "expected KIND:NODES"),
        (0, "a:0", 0, "expected 1 node"),
        (0, "a:1x0", 0, "expected 1 node with 1 device"),
        (2, "", 3, "--racks: expected 1 to 2"),
    ],
)
def test_impossible_clusters_are_refused(count: int, kinds: str, racks: int, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        cluster.parse_nodes(count, 4, kinds, racks)


def test_failures_are_in_order_and_the_same_for_the_same_seed() -> None:
    names = ("node-00", "node-01")
    first = list(islice(cluster.parse_failures("MTBF=1000,repair=50", names, 1), 100))

    assert first == list(islice(cluster.parse_failures("mtbf=1000,repair=50", names, 1), 100))
    assert first != list(islice(cluster.parse_failures("mtbf=1000,repair=50", names, 2), 100))
    assert [node.start_s for node in first] == sorted(node.start_s for node in first)
    assert {round(node.end_s - node.start_s, 6) for node in first} == {50}
    mine = [node for node in first if node.node == "node-00"]
    assert all(before.end_s <= after.start_s for before, after in pairwise(mine))


@pytest.mark.parametrize("text", ["MTBF=1", "MTBF=0,repair=1", "MTBF=x,repair=1", "repair=nan,MTBF=5", "5"])
def test_failures_without_times_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--failures"):
        cluster.parse_failures(text, ("node-00",), 0)


@pytest.mark.parametrize(
    ("text", "complaint"), [("node-09=2", "expected a node"), ("node-00=0.5", "factor of 1 or more")]
)
def test_stragglers_must_be_nodes_and_slow(text: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        cluster.parse_stragglers(text, ("node-00",))
