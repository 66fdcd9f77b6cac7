"""Unmodified torchrun scripts as pods: restarted when a pod is deleted, resumed from a snapshot on a volume."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.cluster.job import ClusterJob, Named
from tests.cluster.kube import ROOT, Kube, on_this_machine
from tests.integration.test_compat_ddp import EPOCHS, SCRIPT, run_alone, weights

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

EXAMPLE = ROOT / "examples" / "09-from-ddp" / "train_ddp.py"


def log(job: ClusterJob, worker: str) -> str:
    return job.kube.elasticdl("logs", job.name, f"--worker={worker}").stdout


def wait_printed(job: ClusterJob, worker: str, words: str) -> None:
    """Until a worker prints the words; fails where the job ends before."""

    def printed() -> bool:
        assert job.published().get("phase") not in ("failed", "succeeded", "stopped"), f"{words!r}\n{job.story()}"
        return words in log(job, worker)

    job.wait(printed, repr(words))


def test_a_script_whose_pod_is_deleted_resumes_from_its_snapshot_with_the_new_world(
    kube: Kube, named: Named, tmp_path: Path
) -> None:
    expected = run_alone(tmp_path / "alone")
    job, directory = named("ddp"), tmp_path / "work"
    directory.mkdir()
    (directory / "slow").touch()
    kube.elasticdl(
        "run", "--detach", *job.pod_options(), "--compat=ddp", "--workers=2", "--failure_budget=0",
        str(SCRIPT), str(directory), str(EPOCHS),
    )  # fmt: skip
    first, second = job.wait_members(2)
    wait_printed(job, first, "epoch 5 of 2 processes")
    assert "2 workers, 2 wished" in kube.elasticdl("status", job.name).stdout

    kube.kubectl("delete", "pod", f"{job.name}-{second}", "--wait=false")
    job.wait(lambda: job.published().get("round") == 2, "the second round")
    survivor, newcomer = job.wait_members(2)
    assert (survivor, newcomer) == (first, "worker-2")
    begins = re.compile(r"rank (\d) of 2 begins at epoch (\d+), start 1, local rank 0 of 1")  # a pod is a machine
    job.wait(lambda: begins.search(log(job, newcomer)), "the start of the new pod's script")
    (directory / "slow").unlink()

    result = job.result()
    assert (result["phase"], result["reason"]) == ("succeeded", "all scripts ended with exit code 0"), job.story()
    assert result["workers_failed"] == 0
    found = {worker: begins.search(log(job, worker)) for worker in (survivor, newcomer)}
    assert [(match[1], int(match[2]) > 5) for match in found.values() if match] == [("0", True), ("1", True)]
    torch.testing.assert_close(weights(directory), expected, rtol=1e-9, atol=1e-12)

    status = job.status()
    assert (status["phase"], status["exit_code"], status["round"]) == ("succeeded", 0, 2)
    assert "all scripts ended with exit code 0" in kube.elasticdl("status", job.name).stdout


def test_the_example_keeps_its_snapshot_in_the_working_directory_of_its_pods(
    kube: Kube, named: Named, tmp_path: Path
) -> None:
    job, directory = named("example"), tmp_path / "work"
    directory.mkdir()
    adjustments = on_this_machine()
    adjustments["worker_pod"]["spec"]["containers"][0]["workingDir"] = str(directory)

    shown = kube.elasticdl(
        "run", *job.pod_options(adjustments), "--compat=ddp", "--workers=2", str(EXAMPLE), "2"
    ).stdout

    assert re.search(r"^epoch 2 of 2: loss \S+ 2 processes$", shown, re.MULTILINE), (
        "the terminal has the script's prints"
    )
    assert re.search(rf"^{job.name} +succeeded$", shown, re.MULTILINE), "and the summary"
    assert shown.count(f"elasticdl logs {job.name}\n") == 1
    assert {path.name for path in directory.iterdir()} == {"snapshot.pt", "digits.safetensors"}
