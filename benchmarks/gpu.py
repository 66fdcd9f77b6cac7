"""Workers that share one GPU: whether 1, 2 and 4 of them end with the same bits, and what sharing costs.

    python benchmarks/gpu.py [--quick] [--json FILE]

Deterministic algorithms are on. The benchmark needs a CUDA device, and ends with an error without one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import reference
import table
import torch
from models import blocks
from reproducible import Runs

from elasticdl import jobs
from elasticdl.spec.env import HOME
from elasticdl.worker.training.numerics import configure_numerics


def plain_loop(steps: int) -> float:
    """Returns the steps per second of one process without ElasticDL: the same slices in order, on the same GPU."""
    configure_numerics(1, "cuda", reproducible=True)
    device = torch.device("cuda")
    data, model = blocks.SyntheticImages(), blocks.forward().to(device)
    optimizer = blocks.optimizer(model.parameters())
    features, labels = data.features[: reference.BATCH].to(device), data.labels[: reference.BATCH].to(device)
    started = time.monotonic()
    for step in range(steps + 20):
        if step == 20:
            torch.cuda.synchronize()
            started = time.monotonic()
        for slice_features, slice_labels in zip(
            features.tensor_split(reference.RANKS), labels.tensor_split(reference.RANKS), strict=True
        ):
            (blocks.loss(slice_labels, model(slice_features)) * (len(slice_labels) / len(labels))).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return steps / (time.monotonic() - started)


def steps_per_s(job: jobs.Job) -> float:
    """Returns the steps per second from the first step to the last, by the events of the job."""
    events = job.events()
    first = next(event.at for event in events if event.kind == "round-entered")
    last = next(event.at for event in events if event.kind == "checkpoint")
    return job.status.step / (last - first)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a shorter job")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("this benchmark needs a CUDA device, and there is none", file=sys.stderr)
        return 2
    epochs = 20 if options.quick else 100
    peer = plain_loop(200 if options.quick else 1000)
    rows, digests = [], {}
    with tempfile.TemporaryDirectory(prefix="gpu-") as scratch:
        os.environ[HOME] = str(Path(scratch) / "home")
        runs = Runs(Path(scratch), epochs, device="cuda")
        for workers in (1, 2, 4):
            name = f"fixed-{workers}"
            digests[f"{workers} worker{'s' * (workers > 1)} sharing one GPU"] = runs.run_fixed(workers)
            rows.append(
                table.Row(
                    f"throughput, {workers} worker{'s' * (workers > 1)} sharing one GPU", "steps/s",
                    steps_per_s(jobs.find(name)), peer, "plain loop, one process",
                )
            )  # fmt: skip
            print(f"{name}: {rows[-1].ours:.1f} steps/s", file=sys.stderr, flush=True)
        if not options.quick:
            digests["elastic run with joins, leaves and two SIGKILLs"] = runs.run_elastic()
    first = next(iter(digests.values()))
    rows += [
        table.Row(f"same bits, {name}", "SHA-256", value[:16], first[:16], "1 worker", "all one value", value == first)
        for name, value in digests.items()
    ]
    title = f"Workers sharing one {torch.cuda.get_device_name()} (torch {torch.__version__})"
    table.show(title, rows)
    if options.json:
        table.write(options.json, rows)
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
