"""The nodes on which pods run, and the volume of their state."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.launcher.kubernetes import manifest
from tests.unit.launcher.jobs import SMALL, job, pod_spec, worker


def test_only_the_masters_state_is_on_a_persistent_volume_claim() -> None:
    spec = job(SMALL, journal_claim="masters")

    def state(document: dict[str, Any]) -> dict[str, Any]:
        return next(volume for volume in pod_spec(document)["volumes"] if volume["name"] == "state")

    assert state(manifest.master_stateful_set(spec, None))["persistentVolumeClaim"] == {"claimName": "masters"}
    assert state(worker(spec))["emptyDir"] == {}


@pytest.mark.parametrize(
    ("spread", "key"), [("nodes", "kubernetes.io/hostname"), ("zones", "topology.kubernetes.io/zone"), ("none", "")]
)
def test_pods_are_spread_over_nodes_if_possible(spread: str, key: str) -> None:
    constraints = pod_spec(worker(job(SMALL, spread=spread))).get("topologySpreadConstraints", [])

    assert [constraint["topologyKey"] for constraint in constraints] == ([key] if key else [])
    assert {constraint["whenUnsatisfiable"] for constraint in constraints} <= {"ScheduleAnyway"}


def test_pods_tolerate_a_lost_node_for_half_a_minute_unless_the_user_sets_a_time() -> None:
    theirs = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}
    tolerations = pod_spec(worker(job(SMALL, tolerations=[theirs])))["tolerations"]

    assert [(toleration["key"], toleration["tolerationSeconds"]) for toleration in tolerations] == [
        ("node.kubernetes.io/unreachable", 300),
        ("node.kubernetes.io/not-ready", 30),
    ]


def test_the_kueue_queue_label_is_on_the_stateful_set_and_on_each_replica() -> None:
    spec, label = job(SMALL, queue="team-a"), "kueue.x-k8s.io/queue-name"
    master = manifest.master_stateful_set(spec, None)

    assert master["metadata"]["labels"][label] == worker(spec)["metadata"]["labels"][label] == "team-a"
    assert label not in master["spec"]["template"]["metadata"]["labels"]


def test_a_node_that_may_be_lost_is_the_last_choice() -> None:
    affinity = pod_spec(worker(job(SMALL), avoid_nodes=["node-1", "node-2"]))["affinity"]["nodeAffinity"]

    (choice,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]  # preferred: there may be no other node
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1", "node-2"]}]
    assert (choice["weight"], choice["preference"]) == (100, {"matchFields": fields})
    assert "affinity" not in pod_spec(worker(job(SMALL)))
