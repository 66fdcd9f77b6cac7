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
from tests.integration.kube.launcher_stage import OWNER, SPEC, Document, LauncherStage, build_pod, run_scene

PRIORITIES = Path(__file__).parents[3] / "deploy" / "manifests" / "priorities.yaml"
NO_REPLICAS = {"event": "replicas", "running": (), "exited": ()}


def test_a_replica_waits_runs_and_exits(api: Api) -> None:
    async def scene(stage: LauncherStage) -> None:
        assert await stage.next_report() == NO_REPLICAS
        stage.launch("worker-0", memory_raises=2)
        waiting = await stage.next_report()
        assert waiting == {
            "event": "delayed",
            "replica": "worker-0",
            "reason": "the container is being started on node-1",
            "is_trouble": False,
        }
        pod = await stage.pod("worker-0")
        assert pod is not None and pod["metadata"]["annotations"] == {"memory_raises": "2"}

        await stage.start_container("worker-0")
        started = await stage.next_report()
        assert started == {"event": "started", "replica": "worker-0", "pid": 1, "started_at": 1772359205.0}
        await stage.end_container("worker-0", 3)
        exited = await stage.next_report()
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

    run_scene(lambda: LauncherStage(api), scene)


def test_a_reason_to_wait_is_reported_once_until_it_changes(api: Api) -> None:
    def unscheduled(message: str) -> Document:
        return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}

    async def scene(stage: LauncherStage) -> None:
        stage.launch("worker-0")
        await stage.wait_for_report("delayed", "worker-0")
        for message in ("0/3 nodes are available: 3 Insufficient cpu.", "0/4 nodes are available: 4 Insufficient cpu."):
            await stage.set_status("worker-0", conditions=[unscheduled(message)])
            assert (await stage.next_report())["reason"] == f"Unschedulable: {message}"
            await stage.set_status("worker-0", message="something else changed")
        await stage.start_container("worker-0")
        assert (await stage.next_report())["event"] == "started"

    run_scene(lambda: LauncherStage(api), scene)


def test_many_pods_are_created_at_the_same_time(api: Api) -> None:
    async def scene(stage: LauncherStage) -> None:
        names = {f"worker-{number}" for number in range(24)}
        assert await stage.next_report() == NO_REPLICAS
        for name in names:
            stage.launch(name)
        assert {(await stage.next_report())["replica"] for _ in names} == names

    run_scene(lambda: LauncherStage(api), scene)
    assert len(api.list(POD)[0]) == 24


def test_the_launcher_of_the_next_master_reports_all_pods(api: Api) -> None:
    async def first(stage: LauncherStage) -> None:
        await stage.launch_and_start("worker-0")
        await stage.launch_and_start("worker-1")
        stage.launch("ps-0")
        await stage.wait_for_report("delayed", "ps-0")
        await stage.end_container("worker-1", 137, "OOMKilled")
        await stage.wait_for_report("exited", "worker-1")

    async def second(stage: LauncherStage) -> None:
        replicas = await stage.next_report()
        assert replicas["event"] == "replicas"
        assert {(running["replica"], running["pid"]) for running in replicas["running"]} == {
            ("worker-0", 1),
            ("ps-0", 1),
        }
        exits = [(exit_["replica"], exit_["code"], exit_["signal"], exit_["cause"]) for exit_ in replicas["exited"]]
        assert exits == [("worker-1", None, 9, "oom")]
        assert (await stage.next_report())["replica"] == "ps-0"  # and why it waits

        for name, event in (("worker-0", "started"), ("ps-0", "delayed"), ("worker-1", "exited")):
            stage.launch(name)
            report = await stage.next_report()
            assert (report["event"], report["replica"]) == (event, name)

    run_scene(lambda: LauncherStage(api), first)
    run_scene(lambda: LauncherStage(api), second)
    assert len(api.list(POD)[0]) == 3


def test_sigterm_deletes_the_pod_with_a_grace_period_and_its_exit_is_no_crash(api: Api) -> None:
    async def scene(stage: LauncherStage) -> None:
        await stage.launch_and_start("worker-0")
        stage.signal("worker-0", 15)
        await stage.launcher.flush()
        pod = await stage.pod("worker-0")
        assert pod is not None and pod["metadata"]["deletionGracePeriodSeconds"] == 25

        await stage.end_container("worker-0", 143, finished_at="2100-01-01T00:00:00Z")
        exited = await stage.next_report()
        assert (exited["event"], exited["code"], exited["signal"], exited["cause"]) == ("exited", None, 15, "deleted")
        await stage.confirm_deletion("worker-0")
        await stage.launch_and_start("worker-1")  # no more reports of worker-0 follow

    run_scene(lambda: LauncherStage(api), scene)


def test_sigkill_deletes_the_pod_at_once(api: Api) -> None:
    async def scene(stage: LauncherStage) -> None:
        await stage.launch_and_start("worker-0")
        stage.signal("worker-0", 9)
        exited = await stage.next_report()
        assert (exited["event"], exited["code"], exited["signal"], exited["cause"]) == ("exited", None, None, "deleted")
        assert await stage.pod("worker-0") is None

    run_scene(lambda: LauncherStage(api), scene)


def test_a_preempted_pod_is_reported_with_the_message_of_the_scheduler(api: Api) -> None:
    async def scene(stage: LauncherStage) -> None:
        await stage.launch_and_start("worker-0")
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}
        await stage.set_status("worker-0", conditions=[condition])
        await stage.end_container("worker-0", 143)
        exited = await stage.next_report()
        assert (exited["cause"], exited["reason"]) == ("preempted", "PreemptionByScheduler: m")

    run_scene(lambda: LauncherStage(api), scene)


def test_a_pod_that_the_server_refuses_is_delayed_with_the_message_of_the_server(api: Api) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "0"}},
    }
    api.create(quota)
    usage = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    api.patch(RESOURCE_QUOTA, "small", usage, sub="status")  # as the controller would

    async def scene(stage: LauncherStage) -> None:
        assert await stage.next_report() == NO_REPLICAS
        stage.launch("worker-0")
        waiting = await stage.next_report()
        assert waiting["event"] == "delayed" and "exceeded quota: small" in waiting["reason"]
        await asyncio.to_thread(api.delete, RESOURCE_QUOTA, "small")
        assert (await stage.next_report())["reason"] == "the container is being started on node-1"

    run_scene(lambda: LauncherStage(api), scene)


def test_a_replica_that_is_signalled_before_it_has_a_pod_exits_and_gets_none(api: Api) -> None:
    def build_invalid_pod(*arguments: object, **options: object) -> Document:
        pod = build_pod(*arguments, **options)  # type: ignore[arg-type]
        return pod | {"spec": pod["spec"] | {"restartPolicy": "Sometimes"}}

    async def scene(stage: LauncherStage) -> None:
        assert await stage.next_report() == NO_REPLICAS
        stage.launch("worker-0")
        assert "Sometimes" in (await stage.next_report())["reason"]
        stage.signal("worker-0", 15)
        exited = await stage.next_report()
        assert (exited["event"], exited["signal"], exited["cause"]) == ("exited", 15, "deleted")

    run_scene(lambda: LauncherStage(api, build_pod=build_invalid_pod), scene)
    assert api.list(POD)[0] == []


def test_a_launch_survives_a_restart_of_the_server(server: ApiServer, api: Api) -> None:
    async def scene(stage: LauncherStage) -> None:
        await stage.launch_and_start("worker-0")
        server.kill()
        stage.launch("worker-1")
        stage.signal("worker-0", 9)
        await asyncio.to_thread(server.start)
        replicas = {(await stage.next_report())["replica"], (await stage.next_report())["replica"]}
        assert replicas == {"worker-0", "worker-1"}

    run_scene(lambda: LauncherStage(api), scene)
    assert [pod["metadata"]["name"] for pod in api.list(POD)[0]] == ["mnist-worker-1"]


def test_pods_of_an_earlier_job_of_the_same_name_are_not_adopted(api: Api) -> None:
    earlier = OWNER._replace(uid="00000000-0000-0000-0000-00000000000b")
    api.create(build_pod(SPEC, "worker-0", "worker", earlier))

    async def scene(stage: LauncherStage) -> None:
        assert await stage.next_report() == NO_REPLICAS
        stage.launch("worker-0")
        assert "that one is not of this job" in (await stage.next_report())["reason"]
        await stage.confirm_deletion("worker-0")
        assert (await stage.next_report())["reason"] == "the container is being started on node-1"

    run_scene(lambda: LauncherStage(api), scene)


def test_only_the_last_ended_pods_are_kept(api: Api) -> None:
    async def scene(stage: LauncherStage) -> None:
        assert await stage.next_report() == NO_REPLICAS
        for number in range(MAX_ENDED_PODS + 2):
            stage.launch(f"worker-{number}")
            await stage.wait_for_report("delayed", f"worker-{number}")
            await stage.end_container(f"worker-{number}", 1, finished_at=f"2026-03-01T10:09:{number:02}Z")
            await stage.wait_for_report("exited", f"worker-{number}")
        await stage.launcher.flush()

    run_scene(lambda: LauncherStage(api), scene)
    assert {pod["metadata"]["name"] for pod in api.list(POD)[0]} == {
        f"mnist-worker-{n}" for n in range(2, MAX_ENDED_PODS + 2)
    }


def test_at_the_end_of_the_job_running_pods_are_deleted_and_ended_ones_stay(api: Api) -> None:
    async def scene(stage: LauncherStage) -> None:
        await stage.launch_and_start("worker-0")
        await stage.launch_and_start("worker-1")
        await stage.end_container("worker-1", 0, "Completed")
        await stage.wait_for_report("exited", "worker-1")
        stage.launch("worker-2")  # its pod may or may not exist when the job ends
        stage.launcher.execute(EndCommand(0))
        await stage.launcher.flush()
        stage.launch("worker-3")
        await stage.launcher.flush()

    run_scene(lambda: LauncherStage(api), scene)
    pods = {pod["metadata"]["name"]: pod["metadata"] for pod in api.list(POD)[0]}
    pods.pop("mnist-worker-2", {"deletionTimestamp": ""})["deletionTimestamp"]
    assert set(pods) == {"mnist-worker-0", "mnist-worker-1"}
    assert pods["mnist-worker-0"]["deletionGracePeriodSeconds"] == 25
    assert "deletionTimestamp" not in pods["mnist-worker-1"]


def test_a_share_of_the_workers_has_high_priority(api: Api) -> None:
    for document in yaml.safe_load_all(PRIORITIES.read_text()):
        with suppress(AlreadyExists):  # they belong to no namespace
            api.create(document)
    assert SPEC.cluster is not None
    worker = SPEC.cluster.worker.model_copy(update={"priority": "0.5"})
    cluster = SPEC.cluster.model_copy(update={"worker": worker})
    workers = SPEC.workers.model_copy(update={"replicas": 4})
    spec = SPEC.model_copy(update={"cluster": cluster, "workers": workers})

    async def scene(stage: LauncherStage) -> None:
        assert await stage.next_report() == NO_REPLICAS
        for number in range(4):
            stage.launch(f"worker-{number}")
        for _ in range(4):
            await stage.next_report()

    run_scene(lambda: LauncherStage(api, spec, build_pod=manifest.replica_pod), scene)
    names = [pod["spec"]["priorityClassName"] for pod in api.list(POD)[0]]
    assert sorted(names) == ["elasticdl-high"] * 2 + ["elasticdl-low"] * 2
