"""Which changes of a job and of its master make the operator reconcile."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import kopf
import pytest

from elasticdl.kube.api import Api
from elasticdl.operator import handlers, health
from elasticdl.operator.handlers import Handlers

OWNER = {"apiVersion": "elasticdl.org/v1", "kind": "ElasticJob", "name": "mnist", "uid": "1"}


def master(**status: Any) -> dict[str, Any]:
    metadata = {"name": "mnist-master", "namespace": "team", "uid": status.pop("uid", "2"), "ownerReferences": [OWNER]}
    return {"metadata": metadata, "spec": {"replicas": status.pop("replicas", 1)}, "status": status}


def job(uid: str = "1", phase: str = "", generation: int = 1) -> dict[str, Any]:
    metadata = {"name": "mnist", "namespace": "team", "uid": uid, "generation": generation}
    return {"metadata": metadata, "status": {"phase": phase}}


class FakeCluster:
    """A cluster with one job. Reconciling it finds the master as it is now, and is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reconciles = 0
        self.master = master()
        self._handlers = Handlers(cast(Api, self))
        monkeypatch.setattr(handlers, "reconcile", self._reconcile)

    def get(self, *_: Any) -> dict[str, Any]:
        return job()

    def _reconcile(self, *_: Any) -> dict[str, Any]:
        self.reconciles += 1
        return self.master

    async def report_job(self, resource: dict[str, Any]) -> int:
        """How many reconciliations this change of the job causes."""
        before = self.reconciles
        await self._handlers.on_job_changed("MODIFIED", kopf.Body(cast(Any, resource)))
        return self.reconciles - before

    async def report_master(self, type: str, stateful_set: dict[str, Any]) -> int:
        """How many reconciliations this change of the master causes."""
        before = self.reconciles
        await self._handlers.on_master_changed(type, kopf.Body(cast(Any, stateful_set)))
        return self.reconciles - before


def test_a_change_of_a_master_that_is_not_read_causes_no_reconciliation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def count_reconciles() -> list[int]:
        cluster = FakeCluster(monkeypatch)
        added = await cluster.report_master("ADDED", master())
        pods_counted = await cluster.report_master(
            "MODIFIED", master(observedGeneration=1, replicas=1, currentReplicas=1)
        )
        cluster.master = master(readyReplicas=1)
        ready = await cluster.report_master("MODIFIED", master(readyReplicas=1))
        observed = await cluster.report_master("MODIFIED", master(readyReplicas=1, observedGeneration=2))
        return [added, pods_counted, ready, observed]

    assert asyncio.run(count_reconciles()) == [1, 0, 1, 0]


def test_a_spec_is_reconciled_once_even_if_its_master_is_reported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def count_reconciles() -> list[int]:
        cluster = FakeCluster(monkeypatch)
        master_added = await cluster.report_master("ADDED", master())
        status_changed = await cluster.report_job(job(phase="Pending"))
        spec_changed = await cluster.report_job(job(generation=2))
        another_job = await cluster.report_job(job(uid="9"))
        return [master_added, status_changed, spec_changed, another_job]

    assert asyncio.run(count_reconciles()) == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("type", "stateful_set"), [("DELETED", master()), ("ADDED", master(uid="3")), ("MODIFIED", master(replicas=0))]
)
def test_a_deleted_replaced_or_scaled_master_is_reconciled(
    monkeypatch: pytest.MonkeyPatch, type: str, stateful_set: dict[str, Any]
) -> None:
    async def count_reconciles() -> int:
        cluster = FakeCluster(monkeypatch)
        await cluster.report_master("ADDED", master())
        return await cluster.report_master(type, stateful_set)

    assert asyncio.run(count_reconciles()) == 1


def test_handlers_that_waited_for_a_reconciliation_of_the_same_job_do_not_repeat_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def count_reconciles() -> int:
        cluster = FakeCluster(monkeypatch)
        await asyncio.gather(*(cluster.report_master("MODIFIED", master()) for _ in range(5)))
        return cluster.reconciles

    assert asyncio.run(count_reconciles()) == 1


def test_jobs_are_counted_by_phase_and_a_new_term_counts_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def job_counts() -> dict[str, float]:
        return {sample.labels["phase"]: sample.value for metric in health.JOBS.collect() for sample in metric.samples}

    async def count_in_two_terms() -> list[dict[str, float]]:
        counts = []
        for _ in range(2):
            term = Handlers(cast(Api, FakeCluster(monkeypatch)))
            term.kopf_registry()
            for type, uid, phase in (
                ("ADDED", "a", ""), ("ADDED", "b", "Pending"), ("MODIFIED", "a", "Running"),
                ("MODIFIED", "a", "Running"), ("DELETED", "b", "Pending"), ("ADDED", "c", "Running"),
            ):  # fmt: skip
                await term.on_job_changed(type, kopf.Body(cast(Any, job(uid, phase))))
            counts.append(job_counts())
        return counts

    assert asyncio.run(count_in_two_terms()) == [{"New": 0, "Pending": 0, "Running": 2}] * 2
