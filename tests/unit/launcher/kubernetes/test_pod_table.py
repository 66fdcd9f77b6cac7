from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.interface import DelayedReport, ExitedProcess, ReplicasReport, Report, StartedReport
from elasticdl.launcher.kubernetes.naming import REPLICA_LABEL, ROLE_LABEL
from elasticdl.launcher.kubernetes.pod_table import PodTable
from tests.unit.launcher import pod_documents as of

Document = dict[str, Any]

LATER = 2e9
STATES = [of.unscheduled(), of.waiting("ContainerCreating"), of.running(), of.deleted(of.running()), of.ended(1)]


def ours(pod: Document, replica: str = "worker-3", role: str = "worker", uid: str = "owner") -> Document:
    labels = {ROLE_LABEL: role, REPLICA_LABEL: replica}
    more = {"labels": labels, "ownerReferences": [{"uid": uid}], "creationTimestamp": of.STARTED}
    return pod | {"metadata": pod["metadata"] | more}


def kinds(reports: Sequence[Report]) -> list[type]:
    return [type(report) for report in reports]


@given(st.lists(st.sampled_from(STATES), max_size=12))
def test_however_old_what_is_heard_a_replica_only_ever_goes_on(heard: list[Document]) -> None:
    book = PodTable("owner")

    told = [one for pod in heard for one in kinds(book.apply_change(None, ours(pod), LATER))]
    told += kinds(book.apply_change(ours(heard[-1]) if heard else ours(of.running()), None, LATER))

    assert told == sorted(told, key=[DelayedReport, StartedReport, ExitedProcess].index)
    assert told.count(StartedReport) <= 1 and told.count(ExitedProcess) == 1


def test_neither_the_master_nor_pods_of_another_owner_are_replicas() -> None:
    book = PodTable("owner")

    assert book.apply_change(None, ours(of.running(), "master", "master"), LATER) == []
    assert book.apply_change(None, ours(of.running(), uid="another"), LATER) == []
    assert book.apply_change(None, of.running(), LATER) == []
    assert book.replicas_report() == ReplicasReport((), ())


def test_a_replica_without_a_pod_waits_but_is_not_listed_as_running() -> None:
    book = PodTable("owner")

    assert book.mark_waiting("worker-0", "a quota") == [DelayedReport("worker-0", "a quota", is_trouble=True)]
    assert book.mark_waiting("worker-0", "a quota") == []
    assert book.replicas_report().running == () and kinds(book.delay_reports()) == [DelayedReport]
    assert kinds(book.mark_never_created("worker-0", 15, LATER)) == [ExitedProcess]
    assert book.delay_reports() == []


def test_an_end_is_reported_with_the_time_the_container_ended() -> None:
    book = PodTable("owner")
    book.apply_change(None, ours(of.ended(1)), LATER)
    book.apply_change(None, ours(of.running(), "worker-4"), LATER)
    book.apply_change(ours(of.running(), "worker-4"), None, LATER)

    ends = {exited.replica: exited.at for exited in book.replicas_report().exited}

    assert ends == {"worker-3": 1772359742.0, "worker-4": LATER}


def test_the_oldest_of_those_that_ended_are_too_many() -> None:
    book = PodTable("owner")
    for second in (3, 1, 2):
        book.apply_change(None, ours(of.ended(1, at=f"2026-03-01T10:00:0{second}Z"), f"worker-{second}"), LATER)
    book.apply_change(None, ours(of.running(), "worker-9"), LATER)

    surplus = [pod["metadata"]["labels"][REPLICA_LABEL] for pod in book.surplus_pods(1)]

    assert surplus == ["worker-1", "worker-2"]
    assert book.surplus_pods(3) == []


def test_where_a_replica_ran_is_known_though_its_pod_is_gone() -> None:
    book = PodTable("owner")
    book.apply_change(None, ours(of.unscheduled(), "worker-4"), LATER)
    book.apply_change(None, ours(of.running()), LATER)
    book.apply_change(ours(of.running()), None, LATER)

    assert book.nodes_of(["worker-3", "worker-4", "worker-5"]) == ["node-2"]
