from __future__ import annotations

from typing import Any

import pytest

from elasticdl.scheduler.kubernetes import capacity

SLOT = "example.com/slot"


def node(name: str, slots: str = "4", **spec: Any) -> dict[str, Any]:
    ready = spec.pop("ready", "True")
    return {
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "b"}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", SLOT: slots},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(name: str, where: str, job: str = "", role: str = "worker", **status: Any) -> dict[str, Any]:
    labels = {"elasticdl.org/job": job, "elasticdl.org/role": role} if job else {}
    requesting = {"resources": {"requests": {"cpu": "500m", SLOT: "1"}}}
    spec: dict[str, Any] = {
        "containers": [requesting, {}],
        "initContainers": [{"resources": {"requests": {"cpu": "1"}}}],
    }
    spec |= {"nodeName": where} if where else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Running"} | status}


def test_a_node_has_what_others_leave_and_workers_of_our_jobs_are_no_others() -> None:
    pods = [pod("web", "a"), pod("w0", "a", "mine"), pod("m", "a", "mine", "master"), pod("x", "a", "foreign")]
    pods += [pod("done", "a", phase="Succeeded"), pod("waits", "")]

    (available,) = capacity.available_nodes([node("a")], pods, {"mine"}, SLOT, 1000)

    assert (available.name, available.devices, available.rack) == ("a", 1, "b")
    assert available.resources["cpu"] == 1.0, "what runs before the containers counts where it is more"
    assert available.resources["pods"] == 107


@pytest.mark.parametrize(
    "wrong",
    [{"unschedulable": True}, {"ready": "Unknown"}, {"taints": [{"key": "down", "effect": "NoSchedule"}]}],
)
def test_a_node_that_takes_no_pods_is_not_there(wrong: dict[str, Any]) -> None:
    assert capacity.available_nodes([node("a", **wrong)], [], set(), SLOT, 1000) == ()


def test_taints_of_gpus_and_mere_preferences_keep_no_pod_away() -> None:
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "old", "effect": "PreferNoSchedule"}]

    assert len(capacity.available_nodes([node("a", taints=taints)], [], set(), SLOT, 1000)) == 1


def test_a_device_is_the_largest_part_that_all_workers_take_whole() -> None:
    requests = [{"cpu": 1.5}, {"cpu": 0.5}, {"cpu": 2.0}]

    assert capacity.milli_per_device(requests, "cpu") == 500
    assert capacity.milli_per_device([], "cpu") == 1000
    (available,) = capacity.available_nodes([node("a")], [], set(), "cpu", 500)
    assert available.devices == 8


def test_workers_are_counted_where_they_are_and_stay() -> None:
    going = pod("w3", "b", "mine")
    going["metadata"]["deletionTimestamp"] = "now"
    pods = [pod("w0", "a", "mine"), pod("w1", "a", "mine"), pod("w2", "b", "mine"), going, pod("w4", "", "mine")]

    assert capacity.count_workers_by_node([*pods, pod("m", "a", "mine", "master")]) == {"mine": {"a": 2, "b": 1}}
