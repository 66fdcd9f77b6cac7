"""Unmodified torchrun scripts as pods: restarted when a pod is deleted, resumed from a snapshot on a volume."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.cluster.job import Named
from tests.cluster.kube import ROOT, Kube, on_this_machine
from tests.integration.test_compat_ddp import EPOCHS, SCRIPT, run_alone, weights

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

EXAMPLE = ROOT / "examples" / "09-from-ddp" / "train_ddp.py"


def read_starts(directory: Path, restarts: int) -> list[tuple[int, ...]]:
    """RANK, LOCAL_RANK, LOCAL_WORLD_SIZE and the first epoch of each process that the script was in a round."""
    path = directory / "starts"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [tuple(map(int, line.split())) for line in lines]
    return sorted(row[1:] for row in rows if row[0] == restarts)


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
    job.wait(lambda: (directory / "snapshot.pt").exists(), "a snapshot")
    assert read_starts(directory, 0) == [(0, 0, 1, 0), (1, 0, 1, 0)], "a pod is a machine of its own"
    assert "2 workers, 2 desired" in kube.elasticdl("status", job.name).stdout

    kube.kubectl("delete", "pod", f"{job.name}-{second}", "--wait=false")
    again = job.wait(lambda: len(read_starts(directory, 1)) == 2 and read_starts(directory, 1), "the next start")
    assert job.wait_members(2) == [first, "worker-2"]
    (directory / "slow").unlink()

    result = job.result()
    assert (result["phase"], result["reason"]) == ("succeeded", "all scripts ended with exit code 0"), job.story()
    assert result["workers_failed"] == 0
    (rank_0, rank_1) = again
    assert rank_0[:3] == (0, 0, 1) and rank_1[:3] == (1, 0, 1)
    assert rank_0[3] == rank_1[3] > 0, "both began with the snapshot"
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
