"""The same bits for any number of workers and any history: SHA-256 of the final weights.

    python benchmarks/reproducible.py [--quick] [--json FILE]

The runs are: a fixed number of 1, 2, 3 and 4 workers; an elastic run with joins, leaves and two SIGKILLs; a run that is
stopped and resumed with another number of workers; and a plain loop without ElasticDL (reference.py).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import reference
import table
import torch
from safetensors.torch import load_file

import elasticdl
from elasticdl.jobs import Job, JobStatus, WorkerStatus
from elasticdl.spec.env import HOME

MODELS = Path(__file__).parent / "models"
POLL_S = 0.1


class Runs:
    """The jobs of one benchmark."""

    def __init__(self, directory: Path, epochs: int, **options: Any) -> None:
        self._directory = directory
        self._epochs = epochs
        self._options = options

    def start(self, name: str, **options: Any) -> Job:
        return elasticdl.submit(
            job_name=name, model_zoo=MODELS, model_def="blocks.forward", data_format="python", training_data="made-up",
            shuffle=False, threads=1, seed=reference.SEED, num_epochs=self._epochs,
            global_batch_size=reference.BATCH, logical_ranks=reference.RANKS, min_workers=1,
            max_workers=reference.RANKS, output=self._directory / f"{name}-model", **self._options, **options,
        )  # fmt: skip

    def digest(self, job: Job) -> str:
        job.wait().raise_for_failure()
        return weights_digest(load_file(self._directory / f"{job.name}-model" / "model.safetensors"))

    # ---- the histories

    def run_fixed(self, workers: int) -> str:
        with self.start(f"fixed-{workers}", num_workers=workers) as job:
            return self.digest(job)

    def run_elastic(self) -> str:
        with self.start("elastic", num_workers=2) as job:
            wait_for(job, step=5, member_count=2)
            job.scale(workers=4)  # two join
            wait_for(job, member_count=4)
            send_signal(job, 1, signal.SIGKILL)
            wait_for(job, member_count=3)
            send_signal(job, 0, signal.SIGTERM)  # the first leaves
            wait_for(job, member_count=3)
            job.scale(workers=2)  # down to two
            send_signal(job, 0, signal.SIGKILL)
            return self.digest(job)

    def run_resumed(self) -> str:
        with self.start("resumed", num_workers=3) as job:
            wait_for(job, step=20)
        with self.start("resumed", num_workers=2, resume=True) as job:
            return self.digest(job)


def members(status: JobStatus) -> list[WorkerStatus]:
    return [worker for worker in status.workers if worker.state == "member"]


def wait_for(job: Job, *, step: int = 0, member_count: int = 0) -> None:
    """Waits until the job has reached a step and a number of members. Raises if it ends before."""
    while True:
        status = job.status
        if status.step >= step and len(members(status)) >= member_count:
            return
        if status.is_over:
            raise RuntimeError(f"{job.name} {status.phase} too early: {status.reason}")
        time.sleep(POLL_S)


def send_signal(job: Job, index: int, number: int) -> None:
    pid = members(job.status)[index].pid
    assert pid is not None
    os.kill(pid, number)


def weights_digest(weights: dict[str, torch.Tensor]) -> str:
    sha256 = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        sha256.update(name.encode())
        sha256.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 and 3 workers only, beside the histories")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    epochs = 60
    with tempfile.TemporaryDirectory(prefix="reproducible-") as scratch:
        os.environ[HOME] = str(Path(scratch) / "home")
        runs = Runs(Path(scratch), epochs)
        digests: dict[str, str] = {}
        for workers in (1, 3) if options.quick else (1, 2, 3, 4):
            digests[f"fixed {workers} worker{'s' * (workers > 1)}"] = runs.run_fixed(workers)
        digests["elastic run with joins, leaves and two SIGKILLs"] = runs.run_elastic()
        digests["resume from a checkpoint with another number of workers"] = runs.run_resumed()
    expected = weights_digest(dict(reference.train(epochs=epochs).state_dict()))
    rows = [
        table.Row(
            name, "SHA-256", value[:16], expected[:16], "plain loop, no ElasticDL", "all one value", value == expected
        )
        for name, value in digests.items()
    ]
    title = f"SHA-256 of the final weights ({epochs * -(-2000 // reference.BATCH)} steps, V = {reference.RANKS})"
    table.show(title, rows)
    if options.json:
        table.write(options.json, rows)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
