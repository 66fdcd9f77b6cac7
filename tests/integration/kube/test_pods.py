"""Launching, watching and deleting pods through a real API server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import yaml

from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists
from elasticdl.kube.kinds import POD, RESOURCE_QUOTA
from elasticdl.launcher.interface import EndCommand
from elasticdl.launcher.kubernetes import manifest
from elasticdl.launcher.kubernetes.pod_launcher import MAX_ENDED_PODS
from tests.integration.kube.apiserver import ApiServer
from tests.integration.kube.launcher_stage import OWNER, SPEC, Document, Stage, play, pod_of

PRIORITIES = Path(__file__).parents[3] / "deploy" / "manifests" / "priorities.yaml"
EMPTY = {"event": "replicas", "running": (), "exited": ()}


def test_a_replica_waits_runs_and_exits(api: Api) -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.next() == EMPTY
        stage.launch("worker-0", memory_raises=2)
        waiting = await stage.next()
        assert waiting == {
            "event": "delayed",
            "replica": "worker-0",
            "reason": "the container is being started on node-1",
            "is_trouble": False,
        }
        pod = await stage.pod("worker-0")
        assert pod is not None and pod["metadata"]["annotations"] == {"memory_raises": "2"}

        await stage.run("worker-0")
        started = await stage.next()
        assert started == {"event": "started", "replica": "worker-0", "pid": 1, "started_at": 1772359205.0}
        await stage.exit("worker-0", 3)
        exited = await stage.next()
        assert exited == {
            "event": "exited",
            "replica": "worker-0",
            "pid": 1,
            "code": 3,
            "signal": None,
            "ended_at": 1772359740.0,
            "cause": "crashed",
            "peak_bytes": 0,
            "reason": "exited with code 3",
        }

    play(lambda: Stage(api), scene)


def test_a_reason_to_wait_is_told_once_and_again_when_it_changes(api: Api) -> None:
    def unscheduled(message: str) -> Document:
        return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}

    async def scene(stage: Stage) -> None:
        stage.launch("worker-0")
        await stage.until("delayed", "worker-0")
        for message in ("0/3 nodes are available: 3 Insufficient cpu.", "0/4 nodes are available: 4 Insufficient cpu."):
            await stage.play("worker-0", conditions=[unscheduled(message)])
            assert (await stage.next())["reason"] == f"Unschedulable: {message}"
            await stage.play("worker-0", message="something else changed")
        await stage.run("worker-0")
        assert (await stage.next())["event"] == "started"

    play(lambda: Stage(api), scene)


def test_many_launches_go_out_at_once(api: Api) -> None:
    async def scene(stage: Stage) -> None:
        names = {f"worker-{number}" for number in range(24)}
        assert await stage.next() == EMPTY
        for name in names:
            stage.launch(name)
        assert {(await stage.next())["replica"] for _ in names} == names

    play(lambda: Stage(api), scene)
    assert len(api.list(POD)[0]) == 24


def test_the_next_master_is_told_all_there_is(api: Api) -> None:
    async def first(stage: Stage) -> None:
        await stage.launched("worker-0")
        await stage.launched("worker-1")
        stage.launch("ps-0")
        await stage.until("delayed", "ps-0")
        await stage.exit("worker-1", 137, "OOMKilled")
        await stage.until("exited", "worker-1")

    async def second(stage: Stage) -> None:
        replicas = await stage.next()
        assert replicas["event"] == "replicas"
        assert {(one["replica"], one["pid"]) for one in replicas["running"]} == {("worker-0", 1), ("ps-0", 1)}
        exited = [(one["replica"], one["code"], one["signal"], one["cause"]) for one in replicas["exited"]]
        assert exited == [("worker-1", None, 9, "oom")]
        assert (await stage.next())["replica"] == "ps-0"  # and why it waits

        for name, event in (("worker-0", "started"), ("ps-0", "delayed"), ("worker-1", "exited")):
            stage.launch(name)
            told = await stage.next()
            assert (told["event"], told["replica"]) == (event, name)

    play(lambda: Stage(api), first)
    play(lambda: Stage(api), second)
    assert len(api.list(POD)[0]) == 3


def test_sigterm_is_a_deletion_with_grace_and_what_it_exits_with_is_no_crash(api: Api) -> None:
    async def scene(stage: Stage) -> None:
        await stage.launched("worker-0")
        stage.signal("worker-0", 15)
        await stage.launcher.flush()
        pod = await stage.pod("worker-0")
        assert pod is not None and pod["metadata"]["deletionGracePeriodSeconds"] == 25

        await stage.exit("worker-0", 143, at="2100-01-01T00:00:00Z")
        exited = await stage.next()
        assert (exited["event"], exited["code"], exited["signal"], exited["cause"]) == ("exited", None, 15, "deleted")
        await stage.vanish("worker-0")
        await stage.launched("worker-1")  # nothing more is heard of worker-0

    play(lambda: Stage(api), scene)


def test_sigkill_is_a_deletion_at_once(api: Api) -> None:
    async def scene(stage: Stage) -> None:
        await stage.launched("worker-0")
        stage.signal("worker-0", 9)
        exited = await stage.next()
        assert (exited["event"], exited["code"], exited["signal"], exited["cause"]) == ("exited", None, None, "deleted")
        assert await stage.pod("worker-0") is None

    play(lambda: Stage(api), scene)


def test_a_pod_that_is_preempted_says_so(api: Api) -> None:
    async def scene(stage: Stage) -> None:
        await stage.launched("worker-0")
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}
        await stage.play("worker-0", conditions=[condition])
        await stage.exit("worker-0", 143)
        exited = await stage.next()
        assert (exited["cause"], exited["reason"]) == ("preempted", "PreemptionByScheduler: m")

    play(lambda: Stage(api), scene)


def test_what_the_server_refuses_waits_in_its_words_until_it_is_allowed(api: Api) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "0"}},
    }
    api.create(quota)
    used = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    api.patch(RESOURCE_QUOTA, "small", used, sub="status")  # as the controller would

    async def scene(stage: Stage) -> None:
        assert await stage.next() == EMPTY
        stage.launch("worker-0")
        waiting = await stage.next()
        assert waiting["event"] == "delayed" and "exceeded quota: small" in waiting["reason"]
        await asyncio.to_thread(api.delete, RESOURCE_QUOTA, "small")
        assert (await stage.next())["reason"] == "the container is being started on node-1"

    play(lambda: Stage(api), scene)


def test_what_is_not_wanted_any_more_before_it_has_a_pod_exits_and_never_gets_one(api: Api) -> None:
    def invalid(*arguments: object, **asked: object) -> Document:
        pod = pod_of(*arguments, **asked)  # type: ignore[arg-type]
        return pod | {"spec": pod["spec"] | {"restartPolicy": "Sometimes"}}

    async def scene(stage: Stage) -> None:
        assert await stage.next() == EMPTY
        stage.launch("worker-0")
        assert "Sometimes" in (await stage.next())["reason"]
        stage.signal("worker-0", 15)
        exited = await stage.next()
        assert (exited["event"], exited["signal"], exited["cause"]) == ("exited", 15, "deleted")

    play(lambda: Stage(api, build_pod=invalid), scene)
    assert api.list(POD)[0] == []


def test_a_launch_outlives_a_restart_of_the_server(server: ApiServer, api: Api) -> None:
    async def scene(stage: Stage) -> None:
        await stage.launched("worker-0")
        server.kill()
        stage.launch("worker-1")
        stage.signal("worker-0", 9)
        await asyncio.to_thread(server.start)
        heard = {(await stage.next())["replica"], (await stage.next())["replica"]}
        assert heard == {"worker-0", "worker-1"}

    play(lambda: Stage(api), scene)
    assert [pod["metadata"]["name"] for pod in api.list(POD)[0]] == ["mnist-worker-1"]


def test_pods_of_an_earlier_job_of_the_name_are_not_ours(api: Api) -> None:
    earlier = OWNER._replace(uid="00000000-0000-0000-0000-00000000000b")
    api.create(pod_of(SPEC, "worker-0", "worker", earlier))

    async def scene(stage: Stage) -> None:
        assert await stage.next() == EMPTY
        stage.launch("worker-0")
        assert "that one is not of this job" in (await stage.next())["reason"]
        await stage.vanish("worker-0")
        assert (await stage.next())["reason"] == "the container is being started on node-1"

    play(lambda: Stage(api), scene)


def test_of_the_pods_that_ended_the_last_are_kept(api: Api) -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.next() == EMPTY
        for number in range(MAX_ENDED_PODS + 2):
            stage.launch(f"worker-{number}")
            await stage.until("delayed", f"worker-{number}")
            await stage.exit(f"worker-{number}", 1, at=f"2026-03-01T10:09:{number:02}Z")
            await stage.until("exited", f"worker-{number}")
        await stage.launcher.flush()

    play(lambda: Stage(api), scene)
    assert {pod["metadata"]["name"] for pod in api.list(POD)[0]} == {
        f"mnist-worker-{n}" for n in range(2, MAX_ENDED_PODS + 2)
    }


def test_once_it_is_over_the_living_are_deleted_and_the_ended_stay(api: Api) -> None:
    async def scene(stage: Stage) -> None:
        await stage.launched("worker-0")
        await stage.launched("worker-1")
        await stage.exit("worker-1", 0, "Completed")
        await stage.until("exited", "worker-1")
        stage.launch("worker-2")  # its pod may or may not be there when the job ends
        stage.launcher.execute(EndCommand(0))
        await stage.launcher.flush()
        stage.launch("worker-3")
        await stage.launcher.flush()

    play(lambda: Stage(api), scene)
    pods = {pod["metadata"]["name"]: pod["metadata"] for pod in api.list(POD)[0]}
    pods.pop("mnist-worker-2", {"deletionTimestamp": ""})["deletionTimestamp"]
    assert set(pods) == {"mnist-worker-0", "mnist-worker-1"}
    assert pods["mnist-worker-0"]["deletionGracePeriodSeconds"] == 25
    assert "deletionTimestamp" not in pods["mnist-worker-1"]


def test_a_share_of_the_workers_has_high_priority(api: Api) -> None:
    for document in yaml.safe_load_all(PRIORITIES.read_text()):
        with suppress(AlreadyExists):  # they are the whole cluster's
            api.create(document)
    assert SPEC.cluster is not None
    worker = SPEC.cluster.worker.model_copy(update={"priority": "0.5"})
    cluster = SPEC.cluster.model_copy(update={"worker": worker})
    workers = SPEC.workers.model_copy(update={"replicas": 4})
    spec = SPEC.model_copy(update={"cluster": cluster, "workers": workers})

    async def scene(stage: Stage) -> None:
        assert await stage.next() == EMPTY
        for number in range(4):
            stage.launch(f"worker-{number}")
        for _ in range(4):
            await stage.next()

    play(lambda: Stage(api, spec, build_pod=manifest.replica_pod), scene)
    names = [pod["spec"]["priorityClassName"] for pod in api.list(POD)[0]]
    assert sorted(names) == ["elasticdl-high"] * 2 + ["elasticdl-low"] * 2
