"""The same bits for any number of workers and any history: SHA-256 of the final weights.

    python benchmarks/reproducible.py [--quick] [--json FILE]

Fixed 1, 2, 3, 4 workers; an elastic run with joins, leaves and two SIGKILLs; a run stopped and resumed with another
number of workers; and a plain loop without ElasticDL (reference.py).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
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

from elasticdl.spec.env import HOME

MODELS = Path(__file__).parent / "models"
POLL_S = 0.1


class Runs:
    """Jobs of one benchmark, each through the command line."""

    def __init__(self, directory: Path, epochs: int, *options: str) -> None:
        self._directory = directory
        self._epochs = epochs
        self._options = options
        self._environ = {**os.environ, HOME: str(directory / "home")}

    def command(self, *arguments: str) -> str:
        argv = [sys.executable, "-m", "elasticdl.cli", *arguments]
        done = subprocess.run(argv, env=self._environ, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(
                f"elasticdl {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def start(self, name: str, *options: str) -> None:
        self.command(
            "train", "--detach", "--job_name", name, "--model_zoo", str(MODELS), "--model_def", "blocks.forward",
            "--data_format", "python", "--training_data", "made-up", "--no-shuffle", "--threads", "1",
            "--seed", str(reference.SEED), "--num_epochs", str(self._epochs),
            "--global_batch_size", str(reference.BATCH), "--logical_ranks", str(reference.RANKS),
            "--min_workers", "1", "--max_workers", str(reference.RANKS),
            "--output", str(self._directory / f"{name}-model"), *self._options, *options,
        )  # fmt: skip

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.command("status", name, "--json"))
        return status

    def members(self, name: str) -> list[dict[str, Any]]:
        return [worker for worker in self.status(name)["workers"] if worker["state"] == "member"]

    def wait(self, name: str, *, step: int = 0, members: int = 0, phase: str = "") -> None:
        """Until the job is so far. Raises where it failed or ended before."""
        while True:
            status = self.status(name)
            here = sum(worker["state"] == "member" for worker in status["workers"])
            if status["phase"] == phase or (not phase and status["step"] >= step and here >= members):
                return
            if status["phase"] in ("failed", "succeeded", "stopped"):
                raise RuntimeError(f"{name} {status['phase']} too early: {status['reason']}")
            time.sleep(POLL_S)

    def digest(self, name: str) -> str:
        self.wait(name, phase="succeeded")
        return digest(load_file(self._directory / f"{name}-model" / "model.safetensors"))

    # ---- the histories

    def fixed(self, workers: int) -> str:
        name = f"fixed-{workers}"
        self.start(name, "--num_workers", str(workers))
        return self.digest(name)

    def elastic(self) -> str:
        name = "elastic"
        self.start(name, "--num_workers", "2")
        self.wait(name, step=5, members=2)
        self.command("scale", name, "--workers", "4")  # two join
        self.wait(name, members=4)
        os.kill(self.members(name)[1]["pid"], signal.SIGKILL)
        self.wait(name, members=3)
        os.kill(self.members(name)[0]["pid"], signal.SIGTERM)  # the first leaves
        self.wait(name, members=3)
        self.command("scale", name, "--workers", "2")  # down to two
        os.kill(self.members(name)[0]["pid"], signal.SIGKILL)
        return self.digest(name)

    def resumed(self) -> str:
        name = "resumed"
        self.start(name, "--num_workers", "3")
        self.wait(name, step=20)
        self.command("stop", name)
        self.wait(name, phase="stopped")
        self.start(name, "--num_workers", "2", "--resume")
        return self.digest(name)


def digest(weights: dict[str, torch.Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        found.update(name.encode())
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 and 3 workers only, beside the histories")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    epochs = 60
    with tempfile.TemporaryDirectory(prefix="reproducible-") as scratch:
        runs = Runs(Path(scratch), epochs)
        found: dict[str, str] = {}
        for workers in (1, 3) if options.quick else (1, 2, 3, 4):
            found[f"fixed {workers} worker{'s' * (workers > 1)}"] = runs.fixed(workers)
        found["elastic run with joins, leaves and two SIGKILLs"] = runs.elastic()
        found["resume from a checkpoint with another number of workers"] = runs.resumed()
    expected = digest(dict(reference.train(epochs=epochs).state_dict()))
    rows = [
        table.Row(
            name, "SHA-256", value[:16], expected[:16], "plain loop, no ElasticDL", "all one value", value == expected
        )
        for name, value in found.items()
    ]
    title = f"SHA-256 of the final weights ({epochs * -(-2000 // reference.BATCH)} steps, V = {reference.RANKS})"
    table.show(title, rows)
    if options.json:
        table.write(options.json, rows)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
