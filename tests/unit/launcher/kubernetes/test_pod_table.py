from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.interface import DelayedReport, ExitedProcess, ReplicasReport, Report, StartedReport
from elasticdl.launcher.kubernetes.naming import REPLICA_LABEL, ROLE_LABEL
from elasticdl.launcher.kubernetes.pod_table import PodTable
from tests.unit.launcher import pod_documents

Document = dict[str, Any]

LATER = 2e9
STATES = [
    pod_documents.unscheduled(),
    pod_documents.waiting("ContainerCreating"),
    pod_documents.running(),
    pod_documents.deleted(pod_documents.running()),
    pod_documents.ended(1),
]


def ours(pod: Document, replica: str = "worker-3", role: str = "worker", uid: str = "owner") -> Document:
    labels = {ROLE_LABEL: role, REPLICA_LABEL: replica}
    metadata = {"labels": labels, "ownerReferences": [{"uid": uid}], "creationTimestamp": pod_documents.STARTED}
    return pod | {"metadata": pod["metadata"] | metadata}


def kinds(reports: Sequence[Report]) -> list[type]:
    return [type(report) for report in reports]


@given(st.lists(st.sampled_from(STATES), max_size=12))
def test_a_replica_never_returns_to_an_earlier_status_after_stale_events(pods: list[Document]) -> None:
    table = PodTable("owner")

    reported = [kind for pod in pods for kind in kinds(table.apply_change(None, ours(pod), LATER))]
    reported += kinds(table.apply_change(ours(pods[-1]) if pods else ours(pod_documents.running()), None, LATER))

    assert reported == sorted(reported, key=[DelayedReport, StartedReport, ExitedProcess].index)
    assert reported.count(StartedReport) <= 1 and reported.count(ExitedProcess) == 1


def test_neither_the_master_nor_pods_of_another_owner_are_replicas() -> None:
    table = PodTable("owner")

    assert table.apply_change(None, ours(pod_documents.running(), "master", "master"), LATER) == []
    assert table.apply_change(None, ours(pod_documents.running(), uid="another"), LATER) == []
    assert table.apply_change(None, pod_documents.running(), LATER) == []
    assert table.replicas_report() == ReplicasReport((), ())


def test_a_replica_without_a_pod_is_pending_and_not_listed_as_running() -> None:
    table = PodTable("owner")

    assert table.mark_waiting("worker-0", "a quota") == [DelayedReport("worker-0", "a quota", is_trouble=True)]
    assert table.mark_waiting("worker-0", "a quota") == []
    assert table.replicas_report().running == () and kinds(table.delay_reports()) == [DelayedReport]
    assert kinds(table.mark_never_created("worker-0", 15, LATER)) == [ExitedProcess]
    assert table.delay_reports() == []


def test_an_end_is_reported_with_the_time_the_container_ended() -> None:
    table = PodTable("owner")
    table.apply_change(None, ours(pod_documents.ended(1)), LATER)
    table.apply_change(None, ours(pod_documents.running(), "worker-4"), LATER)
    table.apply_change(ours(pod_documents.running(), "worker-4"), None, LATER)

    ends = {exited.replica: exited.ended_at for exited in table.replicas_report().exited}

    assert ends == {"worker-3": 1772359742.0, "worker-4": LATER}


def test_surplus_pods_are_those_that_ended_first() -> None:
    table = PodTable("owner")
    for second in (3, 1, 2):
        table.apply_change(
            None, ours(pod_documents.ended(1, finished_at=f"2026-03-01T10:00:0{second}Z"), f"worker-{second}"), LATER
        )
    table.apply_change(None, ours(pod_documents.running(), "worker-9"), LATER)

    surplus = [pod["metadata"]["labels"][REPLICA_LABEL] for pod in table.surplus_pods(1)]

    assert surplus == ["worker-1", "worker-2"]
    assert table.surplus_pods(3) == []


def test_the_node_of_a_replica_is_remembered_after_its_pod_is_gone() -> None:
    table = PodTable("owner")
    table.apply_change(None, ours(pod_documents.unscheduled(), "worker-4"), LATER)
    table.apply_change(None, ours(pod_documents.running()), LATER)
    table.apply_change(ours(pod_documents.running()), None, LATER)

    assert table.nodes_of(["worker-3", "worker-4", "worker-5"]) == ["node-2"]
