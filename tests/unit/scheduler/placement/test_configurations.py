"""The configurations that Sia chooses from."""

from __future__ import annotations

from elasticdl.scheduler.placement.configurations import ConfigurationTable, DeviceConfiguration
from elasticdl.scheduler.snapshot import JobInfo, PlacementConstraint, Snapshot
from tests.unit.scheduler.policies.rules import cluster


def sizes(job: JobInfo, nodes: int = 3, devices: int = 4) -> list[int]:
    return [
        config.workers
        for config in ConfigurationTable(Snapshot(0.0, cluster(nodes, devices), ())).configurations_of(job)
    ]


def test_parts_of_a_node_by_powers_of_two_then_whole_nodes() -> None:
    assert sizes(JobInfo("a", 0.0, max_workers=64)) == [1, 2, 4, 8, 12]
    assert sizes(JobInfo("a", 0.0, max_workers=64), 2, 6) == [1, 2, 4, 6, 12]


def test_workers_of_two_devices_count_in_workers() -> None:
    assert sizes(JobInfo("a", 0.0, max_workers=64, devices=2)) == [1, 2, 4, 6]


def test_the_least_size_and_all_explicit_sizes_count_too() -> None:
    assert sizes(JobInfo("a", 0.0, min_workers=3, max_workers=64)) == [3, 4, 8, 12]
    assert sizes(JobInfo("a", 0.0, min_workers=3, max_workers=64, sizes=(3, 5, 40))) == [3, 5]


def test_each_kind_has_its_own() -> None:
    table = ConfigurationTable(Snapshot(0.0, (*cluster(1, 2, "a"), *cluster(1, 1, "b")), ()))

    assert [(config.kind, config.workers) for config in table.configurations_of(JobInfo("a", 0.0, max_workers=9))] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
    ]


def test_a_job_that_needs_both_kinds_takes_devices_of_both() -> None:
    table = ConfigurationTable(Snapshot(0.0, (*cluster(1, 2, "a"), *cluster(1, 1, "b")), ()))
    both = DeviceConfiguration(3, None, {"a": 2, "b": 1})

    assert table.configurations_of(JobInfo("wide", 0.0, min_workers=3, max_workers=3)) == [both]
    assert table.configurations_of(JobInfo("asks", 0.0, 3, 3, constraints=(PlacementConstraint(1, "b"),))) == [both]


def test_the_present_one_is_known_by_size_and_kind() -> None:
    table = ConfigurationTable(Snapshot(0.0, (*cluster(1, 2, "a"), *cluster(1, 2, "b")), ()))
    able = table.configurations_of(JobInfo("a", 0.0, max_workers=2))

    assert table.current_configuration(
        JobInfo("a", 0.0, max_workers=2, workers={"bn0": 2}), able
    ) == DeviceConfiguration(2, "b", {"b": 2})
    assert table.current_configuration(JobInfo("a", 0.0, max_workers=2, workers={"an0": 1, "bn0": 1}), able) is None
    assert table.current_configuration(JobInfo("a", 0.0, max_workers=2, workers={"gone": 2}), able) is None
