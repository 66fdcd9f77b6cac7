from __future__ import annotations

import pytest

from elasticdl.launcher.kubernetes.pod_status import PodExited, PodRunning, PodStatus, PodWaiting, read_pod_status
from tests.unit.launcher import pod_documents as of

Document = of.Document

PULL = 'Back-off pulling image "registry.local/mnist:1": ErrImagePull: not found'


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (of.pod("Pending", spec={"nodeName": ""}), PodWaiting("the pod is waiting for a scheduler")),
        (of.unscheduled(), PodWaiting(f"Unschedulable: {of.NO_NODE}")),
        (
            of.unscheduled("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
            PodWaiting("SchedulingGated: Scheduling is blocked due to non-empty scheduling gates"),
        ),
        (of.pod("Pending"), PodWaiting("the container is being started on node-2")),
        (of.waiting("ContainerCreating"), PodWaiting("the container is being started on node-2")),
        (of.waiting("ImagePullBackOff", PULL), PodWaiting(f"ImagePullBackOff: {PULL}")),
        (of.waiting("ErrImagePull", "no such host"), PodWaiting("ErrImagePull: no such host")),
        (of.waiting("InvalidImageName", "couldn't parse"), PodWaiting("InvalidImageName: couldn't parse")),
        (of.waiting("ErrImageNeverPull", "not present"), PodWaiting("ErrImageNeverPull: not present")),
        (
            of.waiting("CreateContainerConfigError", 'secret "s" not found'),
            PodWaiting('CreateContainerConfigError: secret "s" not found'),
        ),
        (of.deleted(of.pod("Pending")), PodWaiting("the pod is being deleted")),
        (of.running(), PodRunning("node-2")),
        (of.deleted(of.running()), PodRunning("node-2")),
        (of.disrupted(of.running(), *of.PREEMPTED), PodRunning("node-2")),
        (of.deleted(of.disrupted(of.running(), *of.TAINTED)), PodRunning("node-2")),
    ],
)
def test_a_pod_that_has_not_ended_has_no_exit_status(pod: Document, expected: PodStatus) -> None:
    assert read_pod_status(pod, None) == expected


@pytest.mark.parametrize(
    ("pod", "code", "signal", "cause", "reason"),
    [
        (of.ended(0), 0, None, "completed", "completed"),
        (of.ended(1), 1, None, "crashed", "exited with code 1"),
        (of.ended(139), None, 11, "crashed", "killed by signal 11"),
        (of.ended(3, message="boom"), 3, None, "crashed", "exited with code 3: boom"),
        (of.ended(137, "OOMKilled"), None, 9, "oom", "out of memory (limit 2Gi)"),
        (of.ended(1, "OOMKilled"), 1, None, "oom", "out of memory (limit 2Gi)"),
        (of.ended(137), None, 9, "crashed", "killed by signal 9"),
        (of.ended(128, "StartError", message="no such file"), 128, None, "image", "StartError: no such file"),
        (of.pod("Succeeded"), None, None, "completed", "completed"),
        (of.pod("Failed"), None, None, "", "the pod failed without a reason"),
    ],
)
def test_a_pod_that_ended_by_itself_has_its_exit_status(
    pod: Document, code: int | None, signal: int | None, cause: str, reason: str
) -> None:
    assert read_pod_status(pod, None) == PodExited(code, signal, cause, reason)


@pytest.mark.parametrize("code", [0, 1, 137, 143])
@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (of.PREEMPTED, "preempted"),
        (of.DRAINED, "drained"),
        (of.KUBELET, "evicted"),
        (of.TAINTED, "node-lost"),
        (of.COLLECTED, "node-lost"),
        (("SomethingNew", "of a later version"), "evicted"),
    ],
)
def test_an_exit_code_during_a_disruption_is_not_a_crash(reason: tuple[str, str], cause: str, code: int) -> None:
    status = read_pod_status(of.deleted(of.disrupted(of.ended(code), *reason)), None)

    assert isinstance(status, PodExited)
    assert (status.cause, status.reason) == (cause, ": ".join(reason))


@pytest.mark.parametrize("code", [0, 1, 137, 143])
def test_an_exit_code_during_a_deletion_is_not_a_crash(code: int) -> None:
    status = read_pod_status(of.deleted(of.ended(code)), None)

    assert isinstance(status, PodExited)
    assert (status.cause, status.reason) == ("deleted", "the pod was deleted")


def test_a_pod_that_crashed_before_it_was_deleted_crashed() -> None:
    pod = of.deleted(of.ended(1, finished_at="2026-03-01T10:08:59Z"))

    assert read_pod_status(pod, None) == PodExited(1, None, "crashed", "exited with code 1")


def test_a_disruption_that_did_not_happen_excuses_no_crash() -> None:
    pod = of.condition(of.ended(1), "DisruptionTarget", "False", *of.PREEMPTED)

    assert read_pod_status(pod, None) == PodExited(1, None, "crashed", "exited with code 1")


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("Evicted", "The node was low on resource: ephemeral-storage.", "evicted"),
        ("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu", "evicted"),
        ("NodeShutdown", "Pod was rejected as the node is shutting down.", "evicted"),
        ("Preempting", "Preempted in order to admit critical pod", "preempted"),
        ("NodeLost", "Node node-2 which was running pod is unresponsive", "node-lost"),
    ],
)
def test_a_pod_that_its_node_gave_up_was_lost(reason: str, message: str, cause: str) -> None:
    pod = of.pod("Failed", status={"phase": "Failed", "reason": reason, "message": message})

    assert read_pod_status(pod, None) == PodExited(None, None, cause, f"{reason}: {message}")


def test_a_pod_on_a_silent_node_has_ended_once_it_is_deleted_though_no_kubelet_says_so() -> None:
    silent = of.condition(of.running(), "Ready", "False")
    assert read_pod_status(silent, None) == PodRunning("node-2")

    status = read_pod_status(of.deleted(of.disrupted(silent, *of.TAINTED)), None)

    assert status == PodExited(None, None, "node-lost", ": ".join(of.TAINTED))


def test_a_pod_that_a_lost_node_never_started_has_ended_once_it_is_deleted() -> None:
    bound = of.pod("Pending", status={"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]})
    assert read_pod_status(bound, None) == PodWaiting("the container is being started on node-2")

    status = read_pod_status(of.deleted(of.disrupted(bound, *of.TAINTED)), None)

    assert status == PodExited(None, None, "node-lost", ": ".join(of.TAINTED))


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, PodExited(None, None, "deleted", "the pod is gone")),
        (of.running(), PodExited(None, None, "deleted", "the pod was deleted")),
        (of.unscheduled(), PodExited(None, None, "deleted", "the pod was deleted")),
        (of.disrupted(of.running(), *of.PREEMPTED), PodExited(None, None, "preempted", ": ".join(of.PREEMPTED))),
        (of.ended(1), PodExited(1, None, "crashed", "exited with code 1")),
        (of.deleted(of.ended(143)), PodExited(None, 15, "deleted", "the pod was deleted")),
    ],
)
def test_a_deleted_pod_ended_as_last_observed(last: Document | None, expected: PodStatus) -> None:
    assert read_pod_status(None, last) == expected


def test_a_container_that_an_admission_webhook_put_before_ours_does_not_count() -> None:
    pod = of.running()
    pod["metadata"]["labels"] = {"elasticdl.org/role": "worker"}
    pod["spec"]["containers"].insert(0, {"name": "proxy"})
    added = {"name": "proxy", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    pod["status"]["containerStatuses"].insert(0, added)

    assert read_pod_status(pod, None) == PodRunning("node-2")
