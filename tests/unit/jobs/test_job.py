"""A Job in Python, over a backend with prepared answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

import elasticdl
from elasticdl import jobs
from elasticdl.errors import JobFailed, JobNotFound, MasterUnreachable, SpecError, WaitTimedOut
from elasticdl.jobs import home as jobs_home
from elasticdl.jobs import job
from elasticdl.jobs.job import Job, _evaluation_document
from elasticdl.jobs.job_status import JobEvent, JobStatus
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec, Phase, load


class FakeBackend:
    """Returns a job with these statuses; the last one is repeated."""

    name = "digits"
    location = "here"
    context = ""
    local_directory = None

    def __init__(self, *statuses: pb.JobStatus | Exception) -> None:
        self.statuses = list(statuses)
        self.calls: list[tuple[Any, ...]] = []

    def refresh(self) -> FakeBackend:
        return self

    def load_spec(self) -> JobSpec:
        return training_spec()

    def has_processes(self) -> bool:
        return False

    def status(self, timeout_s: float) -> pb.JobStatus:
        return self.quick_status()

    def quick_status(self) -> pb.JobStatus:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if isinstance(status, Exception):
            raise status
        return status

    def events(self) -> list[pb.EventStatus]:
        return [pb.EventStatus(at=1.0, kind="worker-lost", replica="worker-1", reason="killed", step=7, cost_s=0.5)]

    def scale(self, workers: int, ps: int, batch_scale: int = 0) -> str:
        self.calls.append(("scale", workers, ps, batch_scale))
        return "done"

    def stop(self) -> str:
        self.calls.append(("stop",))
        self.statuses = [status_message("stopped")]
        return ""

    def kill(self, *, delete: bool, reason: str) -> str:
        self.calls.append(("kill", delete))
        return "killed"

    def logged_replicas(self, role: str) -> list[str]:
        return [f"{role}-0"]

    def logs(self, replica: str, follow: bool) -> Iterator[tuple[str, str]]:
        yield replica or "master", "a line"


def status_message(phase: str, step: int = 0, **more: Any) -> pb.JobStatus:
    return pb.JobStatus(
        name="digits", kind="training", phase=phase, step=step, total_steps=10, checkpoint_step=-1, **more
    )


def training_spec(**more: Any) -> JobSpec:
    document = {"name": "digits", "model": {"definition": "m.f"}, "data": {"training": "t", "validation": "v"}}
    return load.resolve_job(document | more)


def make_job(*statuses: pb.JobStatus | Exception) -> tuple[Job, FakeBackend]:
    backend = FakeBackend(*statuses)
    return Job(backend), backend  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "POLL_S", 0.0)


def test_wait_returns_the_last_status_and_reports_each_change_once() -> None:
    digits, _ = make_job(
        status_message("starting"), status_message("running", 5, now=1.0), status_message("running", 5, now=2.0),
        MasterUnreachable("it restarts"), status_message("succeeded", 10),
    )  # fmt: skip
    seen: list[tuple[str, float | None]] = []

    last = digits.wait(on_progress=lambda status: seen.append((status.phase, status.progress)))

    assert seen == [("starting", 0.0), ("running", 0.5), ("succeeded", 1.0)]
    assert last.phase is Phase.SUCCEEDED and last.is_over and last.raise_for_failure() is last


def test_a_wait_that_times_out_reports_the_status() -> None:
    digits, backend = make_job(status_message("running", 5))

    with pytest.raises(WaitTimedOut, match="job 'digits' is still running after 0 s; it goes on"):
        digits.wait(timeout_s=0)

    assert backend.calls == []


def test_a_failed_job_raises_an_error_only_on_request() -> None:
    digits, _ = make_job(status_message("failed", reason="the disk is full", exit_code=1))

    last = digits.wait()

    assert (last.phase, last.exit_code) == (Phase.FAILED, 1)
    with pytest.raises(JobFailed, match="job 'digits' failed: the disk is full"):
        last.raise_for_failure()


def test_scale_forwards_its_numbers_and_refuses_none_and_less_than_one() -> None:
    digits, backend = make_job(status_message("running"))

    assert digits.scale(workers=3) == "done"
    digits.scale(ps=2, batch_scale=4)

    assert backend.calls == [("scale", 3, 0, 0), ("scale", 0, 2, 4)]
    with pytest.raises(SpecError, match="how many"):
        digits.scale()
    with pytest.raises(SpecError, match="workers: expected at least 1; received 0"):
        digits.scale(workers=0)


def test_a_with_block_stops_the_job_however_it_ends() -> None:
    digits, backend = make_job(status_message("running"))

    with pytest.raises(KeyboardInterrupt), digits:
        raise KeyboardInterrupt

    assert backend.calls == [("stop",)]


def test_a_with_block_does_not_stop_an_ended_job() -> None:
    digits, backend = make_job(status_message("succeeded"))

    with digits as same:
        assert same is digits

    assert backend.calls == []


def test_events_and_logs_are_typed_and_an_unknown_replica_is_refused() -> None:
    digits, _ = make_job(status_message("running"))

    assert digits.events() == [JobEvent(1.0, "worker-lost", "worker-1", "killed", 0, 7, 0.5)]
    assert list(digits.logs()) == [("master", "a line")]
    assert next(digits.logs("worker-0")).replica == "worker-0"
    with pytest.raises(SpecError, match="job 'digits' has no worker-1; did you mean 'worker-0'"):
        digits.logs("worker-1")


def test_a_status_has_no_protobuf_in_it_and_cannot_be_changed(status: pb.JobStatus) -> None:
    value = JobStatus.from_message(status, "here")

    assert (value.phase, value.records, value.exit_code) == (Phase.RUNNING, 1920, None)
    assert value.living_workers and all(worker.is_alive for worker in value.living_workers)
    with pytest.raises(FrozenInstanceError):
        value.step = 3  # type: ignore[misc]


def test_a_model_is_evaluated_from_its_export_else_from_its_newest_checkpoint() -> None:
    spec = training_spec(output="/models/digits", plan={"minibatch_size": 32})
    running = JobStatus.from_message(status_message("running", checkpoint_path="/c/checkpoint-5"), "here")
    succeeded = JobStatus.from_message(status_message("succeeded", checkpoint_path="/c/checkpoint-9"), "here")

    early, late = (_evaluation_document(spec, status, None) for status in (running, succeeded))

    assert early["checkpoint"] == {"init_from": "/c/checkpoint-5"}
    assert late["checkpoint"] == {"init_from": "/models/digits"}
    assert late["data"]["validation"] == "v" and "training" not in late["data"]
    evaluation = load.resolve_job(late | {"name": "e"})
    assert (evaluation.kind, evaluation.workers.replicas, evaluation.plan.minibatch_size) == ("evaluation", 1, 32)


@pytest.mark.parametrize(
    ("spec", "checkpoint", "error"),
    [
        ({"data": {"training": "t"}}, "/c", "has no validation data"),
        ({}, "", "has no model yet"),
        ({"kind": "evaluation", "checkpoint": {"init_from": "/c"}}, "/c", "expected a training job"),
        ({"cluster": {"image": "i"}}, "/c", "went with its pod"),
    ],
)
def test_a_job_without_a_model_or_data_cannot_be_evaluated(spec: dict[str, Any], checkpoint: str, error: str) -> None:
    status = JobStatus.from_message(status_message("running", checkpoint_path=checkpoint), "here")

    with pytest.raises((SpecError, JobFailed), match=error):
        _evaluation_document(training_spec(**spec), status, None)


def test_a_job_that_was_deleted_meanwhile_is_not_found(home: object) -> None:
    directory = jobs_home.job_directory("digits")
    directory.create(training_spec())
    digits = jobs.find("dig")
    directory.spec.unlink()

    assert digits.name == "digits" and [job.name for job in jobs.list()] == []
    with pytest.raises(JobNotFound, match=r"no job 'digits' in .* any more: it was deleted"):
        _ = digits.status
    with pytest.raises(JobNotFound, match="no job 'digits'"):
        jobs.find("digits")


def test_find_and_list_refuse_a_wrong_target() -> None:
    with pytest.raises(SpecError, match="--on: expected local or kubernetes; received 'locla'; did you mean 'local'"):
        jobs.find(on="locla")
    with pytest.raises(SpecError, match="--namespace and --context are of Kubernetes"):
        jobs.list(on="local", namespace="n")


def test_importing_elasticdl_is_light() -> None:
    assert elasticdl.jobs is jobs and "submit" in dir(elasticdl)
    with pytest.raises(AttributeError, match="no attribute 'sumbit'"):
        _ = elasticdl.sumbit
    with pytest.raises(AttributeError, match="no attribute 'fnd'"):
        _ = jobs.fnd
