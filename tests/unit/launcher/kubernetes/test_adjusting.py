"""Overrides: the user's changes to the objects of a job."""

from __future__ import annotations

from typing import Any

from elasticdl.launcher.kubernetes import manifest
from tests.unit.launcher.jobs import ALL, MASTER_SET, SMALL, container, job, pod_spec, worker


def test_changes_are_merged_last_and_by_name() -> None:
    spec = job(ALL)
    changed = container(manifest.replica_pod(spec, "worker-0", "worker", MASTER_SET))
    ps = container(manifest.replica_pod(spec, "ps-0", "ps", MASTER_SET))

    def team(container: dict[str, Any]) -> str:
        return str(next(variable["value"] for variable in container["env"] if variable["name"] == "TEAM"))

    assert (team(changed), team(ps)) == ("speech", "vision")
    assert len(changed["env"]) == len(ps["env"])
    assert changed["image"] == ps["image"]


def test_the_change_of_a_role_wins_over_that_of_all_pods() -> None:
    overrides = {
        "pod": {"spec": {"hostNetwork": True, "dnsPolicy": "Default"}},
        "worker_pod": {"spec": {"dnsPolicy": "None"}},
    }
    pod = pod_spec(worker(job(SMALL, overrides=overrides)))

    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "None")


def test_null_removes_a_key_and_lists_without_names_are_replaced() -> None:
    overrides = {"pod": {"spec": {"securityContext": None, "tolerations": [{"operator": "Exists"}]}}}
    pod = pod_spec(worker(job(SMALL, overrides=overrides)))

    assert "securityContext" not in pod
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_mounts_are_identified_by_their_path() -> None:
    mount = {"name": "cache", "mountPath": "/cache"}
    again = {"name": "tmp", "mountPath": "/tmp", "subPath": "x"}
    overrides = {"worker_pod": {"spec": {"containers": [{"name": "worker", "volumeMounts": [mount, again]}]}}}
    before, after = container(worker(job(SMALL)))["volumeMounts"], container(worker(job(SMALL, overrides=overrides)))

    assert len(after["volumeMounts"]) == len(before) + 1
    assert mount in after["volumeMounts"]
    assert again in after["volumeMounts"]


def test_no_override_changes_the_name_or_the_job_of_a_pod() -> None:
    theirs = {"name": "other", "namespace": "other", "labels": {"elasticdl.org/job": "other", "a": "b"}}
    metadata = worker(job(SMALL, overrides={"pod": {"metadata": theirs}}))["metadata"]

    assert (metadata["name"], metadata["namespace"]) == ("digits-worker-0", "default")
    assert metadata["labels"] == manifest.object_labels(job(SMALL), "worker", "worker-0") | {"a": "b"}
