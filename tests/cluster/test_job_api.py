"""A job of pods from Python: the same Job, with the same methods, as one of this machine."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import elasticdl
from elasticdl import jobs
from elasticdl.errors import JobNotFound, NameInUse, SpecError
from elasticdl.kube.errors import NoCluster
from elasticdl.spec import Phase
from tests.cluster.job import NAMESPACE, SMALL
from tests.cluster.kube import HOST_IMAGE, ROOT, Kube, on_this_machine
from tests.integration.job import BATCH, EPOCHS, LOGICAL_RANKS, STEPS
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    # The Kubernetes client leaves the sockets of a port-forward to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PATIENCE_S = 180.0


@pytest.fixture(autouse=True)
def _cluster_of_the_context(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("KUBECONFIG", "PATH"):
        monkeypatch.setenv(name, kube.environ[name])
    yield
    gc.collect()  # within the filter above


@pytest.fixture
def options(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A job of pods that trains tests/integration/tiny.py; all jobs of the test are deleted at its end."""
    yield {
        "on": "kubernetes", "image_name": HOST_IMAGE, "namespace": NAMESPACE, "cluster_spec": on_this_machine(),
        "volume": [{"host_path": str(tmp_path), "mount_path": str(tmp_path)}], "threads": 1,
        "master_resource_request": SMALL, "worker_resource_request": SMALL, "data_format": "python",
        "model_zoo": ROOT / "tests" / "integration", "model_def": "tiny.forward", "training_data": "made-up",
        "validation_data": "made-up", "num_epochs": EPOCHS, "global_batch_size": BATCH, "num_workers": 2,
        "logical_ranks": LOGICAL_RANKS, "max_workers": LOGICAL_RANKS, "output": tmp_path / "output",
        "model_params": {"slow": str(tmp_path / "slow"), "pause_s": 0.15},
    }  # fmt: skip
    for job in jobs.list(on="kubernetes", namespace=NAMESPACE):
        if job.name.startswith("api-"):
            job.kill(delete=True)


def test_a_job_of_pods_is_scaled_waited_for_evaluated_and_deleted(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    job = elasticdl.submit(job_name="api-digits", **options)

    assert job.location.endswith(f"/{NAMESPACE}") and job.directory is None
    with pytest.raises(NameInUse, match="job 'api-digits' already exists in namespace"):
        elasticdl.submit(job_name="api-digits", **options)
    until("two workers", lambda: job.status.step > 2 and len(job.status.living_workers) == 2, PATIENCE_S)
    job.scale(workers=3)
    until("a third", lambda: sum(worker.state == "member" for worker in job.status.workers) == 3, PATIENCE_S)
    (tmp_path / "slow").unlink()
    phases: list[Phase] = []
    last = job.wait(PATIENCE_S, on_progress=lambda status: phases.append(status.phase)).raise_for_failure()

    assert (last.phase, last.step, last.exit_code) == (Phase.SUCCEEDED, STEPS, 0)
    assert phases[0] is Phase.RUNNING
    assert {"worker-joined", "finished"} <= {event.kind for event in job.events()}
    assert jobs.find("api-dig", on="kubernetes", namespace=NAMESPACE).name == job.name
    evaluation = job.evaluate(job_name="api-evaluation", threads=1)
    assert evaluation.wait(PATIENCE_S).raise_for_failure().metrics == pytest.approx(job.metrics)
    with pytest.raises(SpecError, match="job 'api-digits' is over"):
        job.scale(workers=2)
    job.kill(delete=True)
    until("its end", lambda: job.name not in {listed.name for listed in jobs.list(on="kubernetes")}, PATIENCE_S)
    with pytest.raises(JobNotFound, match="no job 'api-digits' in namespace"):
        _ = job.status


def test_a_block_stops_a_job_of_pods_with_a_checkpoint(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    with elasticdl.submit(job_name="api-stopped", **options, checkpoint_dir=tmp_path / "checkpoints") as job:
        until("a few steps", lambda: job.status.step > 2, PATIENCE_S)
        assert any(line.replica == "master" for line in job.logs())

    assert job.status.phase is Phase.STOPPED and (job.status.checkpoint_step or 0) > 2


def test_an_unknown_context_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(NoCluster, match="nowhere"):
        elasticdl.submit(**options, context="nowhere")
