"""Which changes of a master the operator looks at."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import kopf
import pytest

from elasticdl.kube.api import Api
from elasticdl.operator import handlers, health
from elasticdl.operator.handlers import Handlers

OWNER = {"apiVersion": "elasticdl.org/v1", "kind": "ElasticJob", "name": "mnist", "uid": "1"}


def master(**change: Any) -> dict[str, Any]:
    metadata = {"name": "mnist-master", "namespace": "team", "uid": change.pop("uid", "2"), "ownerReferences": [OWNER]}
    return {"metadata": metadata, "spec": {"replicas": change.pop("replicas", 1)}, "status": change}


def job(uid: str = "1", phase: str = "", generation: int = 1) -> dict[str, Any]:
    metadata = {"name": "mnist", "namespace": "team", "uid": uid, "generation": generation}
    return {"metadata": metadata, "status": {"phase": phase}}


class There:
    """A cluster with one job, whose master the looks find as it is now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self.master = master()
        self._reactions = Handlers(cast(Api, self))
        monkeypatch.setattr(handlers, "reconcile", self._reconcile)

    def get(self, *_: Any) -> dict[str, Any]:
        return job()

    def _reconcile(self, *_: Any) -> dict[str, Any]:
        self.looks += 1
        return self.master

    async def hear_of_job(self, told: dict[str, Any]) -> int:
        before = self.looks
        await self._reactions.on_job_changed("MODIFIED", kopf.Body(cast(Any, told)))
        return self.looks - before

    async def hear(self, type: str, told: dict[str, Any]) -> int:
        """How many looks it took."""
        before = self.looks
        await self._reactions.on_master_changed(type, kopf.Body(cast(Any, told)))
        return self.looks - before


def test_what_a_look_would_not_read_of_a_master_is_no_reason_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heard() -> list[int]:
        there = There(monkeypatch)
        first = await there.hear("ADDED", master())
        counted = await there.hear("MODIFIED", master(observedGeneration=1, replicas=1, currentReplicas=1))
        there.master = master(readyReplicas=1)
        ready = await there.hear("MODIFIED", master(readyReplicas=1))
        again = await there.hear("MODIFIED", master(readyReplicas=1, observedGeneration=2))
        return [first, counted, ready, again]

    assert asyncio.run(heard()) == [1, 0, 1, 0]


def test_a_job_is_looked_at_once_for_each_spec_whoever_told_of_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heard() -> list[int]:
        there = There(monkeypatch)
        by_its_master = await there.hear("ADDED", master())
        itself = await there.hear_of_job(job(phase="Pending"))
        changed = await there.hear_of_job(job(generation=2))
        another = await there.hear_of_job(job(uid="9"))
        return [by_its_master, itself, changed, another]

    assert asyncio.run(heard()) == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("type", "told"), [("DELETED", master()), ("ADDED", master(uid="3")), ("MODIFIED", master(replicas=0))]
)
def test_a_master_that_goes_or_is_another_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, type: str, told: dict[str, Any]
) -> None:
    async def heard() -> int:
        there = There(monkeypatch)
        await there.hear("ADDED", master())
        return await there.hear(type, told)

    assert asyncio.run(heard()) == 1


def test_who_waited_for_a_look_at_the_same_job_does_not_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heard() -> int:
        there = There(monkeypatch)
        told = [there.hear("MODIFIED", master()) for _ in range(5)]
        await asyncio.gather(*told)
        return there.looks

    assert asyncio.run(heard()) == 1


def test_jobs_are_counted_by_phase_and_a_new_term_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted() -> dict[str, float]:
        return {one.labels["phase"]: one.value for family in health.JOBS.collect() for one in family.samples}

    async def heard() -> list[dict[str, float]]:
        found = []
        for _ in range(2):
            there = Handlers(cast(Api, There(monkeypatch)))
            for type, uid, phase in (
                ("ADDED", "a", ""), ("ADDED", "b", "Pending"), ("MODIFIED", "a", "Running"),
                ("MODIFIED", "a", "Running"), ("DELETED", "b", "Pending"), ("ADDED", "c", "Running"),
            ):  # fmt: skip
                await there.on_job_changed(type, kopf.Body(cast(Any, job(uid, phase))))
            found.append(counted())
        return found

    assert asyncio.run(heard()) == [{"New": 0, "Pending": 0, "Running": 2}] * 2
