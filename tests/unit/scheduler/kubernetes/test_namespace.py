"""A namespace in memory: the snapshot for the policy, and the patches that are written."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

import pytest

from elasticdl.kube.api import ALL_NAMESPACES
from elasticdl.kube.errors import ApiCall, ApiUnavailable, Forbidden, NotFound
from elasticdl.kube.kinds import CONFIG_MAP, ELASTIC_JOB, NODE, POD, ResourceKind
from elasticdl.scheduler.kubernetes.annotations import PRIORITY, REQUESTED_WORKERS, SCHEDULING_REASON, SUSPENDED_BY
from elasticdl.scheduler.kubernetes.namespace import NamespaceCluster
from elasticdl.scheduler.kubernetes.resource import parse_elastic_job
from elasticdl.scheduler.loop import SchedulingLoop
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.policies.goodput.policy import GoodputPolicy
from tests.unit.scheduler.kubernetes.test_capacity import SLOT, node, pod


class Memory:
    """An API server, as far as these tests need one."""

    def __init__(self) -> None:
        self.objects: dict[ResourceKind, list[dict[str, Any]]] = {NODE: [], POD: [], ELASTIC_JOB: [], CONFIG_MAP: []}
        self.patched: list[str] = []
        self.error: Exception | None = None

    def list(self, kind: ResourceKind, namespace: str = "", labels: str = "") -> tuple[list[dict[str, Any]], str]:
        assert namespace == {NODE: "", POD: ALL_NAMESPACES}.get(kind, "here")
        return copy.deepcopy(self.objects[kind]), "1"

    def patch(self, kind: ResourceKind, name: str, change: dict[str, Any], namespace: str) -> None:
        self.patched.append(name)
        if self.error:
            raise self.error
        (document,) = (item for item in self.objects[kind] if item["metadata"]["name"] == name)
        annotations = document["metadata"].setdefault("annotations", {})
        for key, text in change.get("metadata", {}).get("annotations", {}).items():
            annotations.pop(key, None) if text is None else annotations.update({key: text})
        spec = change.get("spec", {})
        document["spec"]["workers"] |= spec.get("workers", {})
        document["spec"] |= {key: value for key, value in spec.items() if key != "workers"}


def elastic(name: str, workers: int = 2, low: int = 1, high: int = 4, slots: str = "1", **more: Any) -> dict[str, Any]:
    requests = {"cpu": "50m", SLOT: slots} if slots else {"cpu": "50m"}
    return {
        "metadata": {
            "name": name, "namespace": "here", "uid": f"uid-{name}", "creationTimestamp": "2026-11-15T00:00:00Z",
            "annotations": more.pop("annotations", {}), **more.pop("metadata", {}),
        },
        "spec": {
            "model": {"definition": "m.forward"},
            "workers": {"replicas": workers, "min": low, "max": high},
            "cluster": {"image": "i", "worker": {"requests": requests}},
            "suspend": more.pop("suspend", False),
        },
        "status": more,
    }  # fmt: skip


def worker(job: str, number: int, where: str) -> dict[str, Any]:
    memory_ = pod(f"{job}-worker-{number}", where, job)
    memory_["metadata"]["namespace"] = "here"
    return memory_


@pytest.fixture
def memory() -> Memory:
    memory_ = Memory()
    memory_.objects[NODE] = [node("a")]
    return memory_


def namespace(memory: Memory) -> NamespaceCluster:
    return NamespaceCluster(memory, "here", SLOT, lambda: True)  # type: ignore[arg-type]


def spec(memory: Memory, name: str) -> tuple[int, bool]:
    (document,) = (item for item in memory.objects[ELASTIC_JOB] if item["metadata"]["name"] == name)
    return document["spec"]["workers"]["replicas"], document["spec"]["suspend"]


def annotations_of(memory: Memory, name: str) -> dict[str, str]:
    (document,) = (item for item in memory.objects[ELASTIC_JOB] if item["metadata"]["name"] == name)
    return dict(document["metadata"]["annotations"])


def test_a_job_is_shown_with_its_pods_and_what_its_master_wrote_down(memory: Memory) -> None:
    memory.objects[ELASTIC_JOB] = [elastic("j", annotations={PRIORITY: "7"})]
    memory.objects[POD] = [worker("j", 0, "a"), worker("j", 1, "a")]
    status = {
        "phase": "running", "step": 30, "totalSteps": 90, "progress": 30.0, "globalBatch": 64,
        "speeds": [{"nodes": 1, "workers": 2, "localBatch": 32, "stepS": 0.2, "computeS": 0.1}],
    }  # fmt: skip
    labels = {"elasticdl.org/job": "j", "elasticdl.org/role": "status"}
    memory.objects[CONFIG_MAP] = [{"metadata": {"labels": labels}, "data": {"status.json": json.dumps(status)}}]

    (job,) = namespace(memory).snapshot(1e10).jobs

    assert (job.min_workers, job.max_workers, job.requested, job.priority, job.devices) == (1, 4, 2, 7, 1)
    assert (dict(job.workers), job.work_done, job.work_left) == ({"a": 2}, 30.0, 60.0)
    assert job.rates is not None and job.rates.batch(2, 1) is None, "nobody could ask its master for another"
    assert job.request == {"cpu": 0.05}


@pytest.mark.parametrize(
    "overrides",
    [
        {"phase": "Succeeded"}, {"suspend": True}, {"slots": ""}, {"metadata": {"deletionTimestamp": "now"}},
        {"low": 5, "high": 4},
    ],
)  # fmt: skip
def test_a_job_that_is_over_wrong_or_suspended_by_a_person_is_left_alone(memory: Memory, overrides: Any) -> None:
    memory.objects[ELASTIC_JOB] = [elastic("j", **overrides)]

    assert namespace(memory).snapshot(1.0).jobs == ()


def test_a_worker_count_is_written_once_and_the_users_is_remembered(memory: Memory) -> None:
    memory.objects[ELASTIC_JOB] = [elastic("j")]
    here = namespace(memory)
    for now in (1e10, 1e10 + 1):
        here.snapshot(now)
        here.apply(AllocationPlan({"j": Allocation({"a": 4}, "all it can use")}), now)

    assert spec(memory, "j") == (4, False)
    assert annotations_of(memory, "j") == {SCHEDULING_REASON: "all it can use", REQUESTED_WORKERS: "2"}
    assert memory.patched == ["j"]
    (job,) = here.snapshot(1e10 + 2).jobs
    assert (dict(job.workers), job.requested) == ({"a": 4}, 2)


def test_a_job_that_gets_nothing_is_suspended_and_goes_on_when_there_is_room(memory: Memory) -> None:
    memory.objects[ELASTIC_JOB] = [elastic("j")]
    here = namespace(memory)
    here.snapshot(1e10)
    here.apply(AllocationPlan({"j": Allocation({}, "others were first")}), 1e10)
    assert spec(memory, "j") == (2, True)
    assert annotations_of(memory, "j") == {SCHEDULING_REASON: "others were first", SUSPENDED_BY: "scheduler"}

    (job,) = here.snapshot(1e10 + 1).jobs
    assert not job.workers
    here.apply(AllocationPlan({"j": Allocation({"a": 2}, "free")}), 1e10 + 1)
    assert spec(memory, "j") == (2, False)
    assert annotations_of(memory, "j") == {SCHEDULING_REASON: "free"}


def test_shrinking_jobs_are_written_before_growing_ones(memory: Memory) -> None:
    memory.objects[ELASTIC_JOB] = [elastic("a", workers=1), elastic("b", workers=4), elastic("c", workers=3)]
    here = namespace(memory)
    here.snapshot(1e10)
    here.apply(
        AllocationPlan({"a": Allocation({"a": 2}, ""), "b": Allocation({"a": 1}, ""), "c": Allocation({}, "")}), 1e10
    )

    assert memory.patched in (["b", "c", "a"], ["c", "b", "a"])


@pytest.mark.parametrize("error", [NotFound("gone"), Forbidden(ApiCall("patch", ELASTIC_JOB, "here", "j"), "no")])
def test_a_job_that_cannot_be_written_does_not_stop_the_others(memory: Memory, error: Exception) -> None:
    memory.objects[ELASTIC_JOB] = [elastic("j"), elastic("k")]
    memory.error = error
    here = namespace(memory)
    here.snapshot(1e10)
    here.apply(AllocationPlan({name: Allocation({"a": 1}, "") for name in ("j", "k")}), 1e10)

    assert memory.patched == ["j", "k"]


def test_an_unavailable_server_is_reported_after_the_other_jobs_were_written(memory: Memory) -> None:
    memory.objects[ELASTIC_JOB] = [elastic("j"), elastic("k")]
    memory.error = ApiUnavailable("not now")
    here = namespace(memory)
    here.snapshot(1e10)

    plan = AllocationPlan({name: Allocation({"a": 1}, "") for name in ("j", "k")})
    with pytest.raises(ApiUnavailable):
        here.apply(plan, 1e10)
    assert memory.patched == ["j", "k"]

    memory.error = None
    here.snapshot(1e10 + 1)
    here.apply(plan, 1e10 + 1)
    assert spec(memory, "j") == spec(memory, "k") == (1, False)


def test_a_new_job_makes_the_first_shrink_and_priority_takes_all(memory: Memory) -> None:
    memory.objects[ELASTIC_JOB] = [elastic("first")]
    here = namespace(memory)
    loop = SchedulingLoop(GoodputPolicy(), here)
    loop.run_once(1e10)
    assert spec(memory, "first") == (4, False)

    memory.objects[ELASTIC_JOB].append(elastic("second"))
    loop.run_once(1e10 + 10)
    shares = spec(memory, "first")[0], spec(memory, "second")[0]
    assert sum(shares) == 4 and min(shares) >= 1

    memory.objects[ELASTIC_JOB].append(elastic("urgent", 4, 4, 4, annotations={PRIORITY: "1"}))
    loop.run_once(1e10 + 20)
    assert [spec(memory, name)[1] for name in ("first", "second", "urgent")] == [True, True, False]
    assert "waits" in annotations_of(memory, "first")[SCHEDULING_REASON]


def test_what_the_scheduler_writes_is_no_news() -> None:
    before, after = (
        elastic("j", annotations={REQUESTED_WORKERS: "2"}),
        elastic("j", workers=4, annotations={REQUESTED_WORKERS: "2"}),
    )
    item, changed = parse_elastic_job(before), parse_elastic_job(after)

    assert item is not None and changed is not None
    assert item.change_key == changed.change_key


@pytest.mark.parametrize("policy", ["goodput", "fifo-gang", "max-min"])
def test_a_job_that_others_leave_no_room_for_waits_and_runs_when_they_are_gone(memory: Memory, policy: str) -> None:
    memory.objects[ELASTIC_JOB] = [elastic("j", workers=2, low=2)]
    memory.objects[POD] = [pod(f"web-{number}", "a") for number in range(3)]
    here = namespace(memory)
    loop = SchedulingLoop(load_policy(policy), here)
    loop.run_once(1e10)

    assert not loop.policy_error and spec(memory, "j") == (2, True)
    assert annotations_of(memory, "j")[SCHEDULING_REASON].startswith(
        "waits for devices that other users hold: needs 2 workers of 1 device"
    )
    memory.objects[POD] = []
    loop.run_once(1e10 + 30)
    assert spec(memory, "j")[1] is False


def test_two_gangs_for_one_room_do_not_take_turns_at_every_decision(memory: Memory) -> None:
    """To be given workers costs a job without any its start; a change costs one that runs next to nothing."""
    memory.objects[ELASTIC_JOB] = [elastic("first", workers=4, low=4)]
    here = namespace(memory)
    loop = SchedulingLoop(GoodputPolicy(), here)
    loop.run_once(1e10)
    memory.objects[ELASTIC_JOB].append(elastic("second", workers=4, low=4))
    memory.objects[ELASTIC_JOB][-1]["metadata"]["creationTimestamp"] = "2286-11-20T17:47:00Z"  # 20 s later

    ran = []
    for turn in range(1, 21):
        loop.run_once(1e10 + 30 * turn)
        ran.append(next(name for name in ("first", "second") if not spec(memory, name)[1]))

    exchanges = sum(before != after for before, after in pairwise(ran))
    assert exchanges <= 6, f"slices are to be minutes: {ran}"
