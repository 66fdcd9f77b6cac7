"""What elasticity costs while nothing happens: steady throughput beside plain DistributedDataParallel.

    python benchmarks/overhead.py [--quick] [--repeats N] [--json FILE]

Same model, same records, same global batch, one thread per worker, one step file for both. The runs take turns
(DDP, ours, DDP, ours, …); a ratio is the median of the ratios of neighbours. Our workers keep their memory between
steps; DDP is also shown with the same settings of malloc, so that one sees which part of the difference that is. The
last row of each pair of workers is ours with TLS beside ours without.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import table
from peers import steps
from peers.elasticdl_job import MODELS
from peers.torchrun_job import SCRIPT

from elasticdl.launcher.replica_environ import ALLOCATOR

LOGICAL_RANKS = 8  # of the row that is printed beside DDP accumulating as many micro-batches


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    size: str
    global_batch: int
    steps: int
    quick_steps: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Our way to train, and the number of micro-batches DDP accumulates on all workers together."""

    name: str
    options: tuple[str, ...]
    micro_batches: int
    goal: float | None
    keeps_memory: bool = False  # DDP with our settings of malloc


MODELS_MEASURED = (
    Model("1.3 M weights", "small", global_batch=256, steps=300, quick_steps=150),
    Model("25 M weights", "large", global_batch=128, steps=60, quick_steps=25),
)


def comparisons(workers: int) -> tuple[Comparison, ...]:
    each = ("--logical_ranks", str(workers))
    return (
        Comparison("reproducible off", ("--no-reproducible", *each), workers, 0.97),
        Comparison(f"reproducible, V = {workers}", ("--reproducible", *each), workers, 0.90),
        Comparison(
            f"reproducible, V = {LOGICAL_RANKS}",
            ("--reproducible", "--logical_ranks", str(LOGICAL_RANKS)),
            LOGICAL_RANKS,
            None,
        ),
        Comparison("reproducible off", ("--no-reproducible", *each), workers, None, keeps_memory=True),
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", default="1,2", help="numbers of workers, with commas between")
    parser.add_argument("--only", choices=[model.size for model in MODELS_MEASURED])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    repeats = 1 if options.quick else options.repeats

    rows, notes = [], [table.machine()]
    for model in MODELS_MEASURED:
        if options.only in (None, model.size):
            for workers in map(int, options.workers.split(",")):
                count = model.quick_steps if options.quick else model.steps
                rows += measure(model, workers, repeats, count)
                if workers > 1:
                    rows.append(measure_tls(model, workers, repeats, count))
    title = f"Steady throughput beside plain DDP ({repeats} repetitions, medians)"
    notes.append(table.machine())
    table.show(title, rows, notes=notes)
    if options.json:
        table.write(options.json, rows)
    return 0


def measure(model: Model, workers: int, repeats: int, count: int) -> list[table.Row]:
    compared = comparisons(workers)
    ours: dict[Comparison, list[float]] = {one: [] for one in compared}
    theirs: dict[Comparison, list[float]] = {one: [] for one in compared}
    for _ in range(repeats):
        for one in compared:
            theirs[one].append(run_ddp(model, workers, one, count))
            ours[one].append(run_ours(model, workers, one.options, count))
            said = f"{model.name}, {workers} workers, {one.name}: ours {ours[one][-1]:.2f}/s"
            print(f"{said}, {_peer(one, workers)} {theirs[one][-1]:.2f}/s", file=sys.stderr, flush=True)
    return [_row(model, workers, one, ours[one], theirs[one]) for one in compared]


def measure_tls(model: Model, workers: int, repeats: int, count: int) -> table.Row:
    """What encryption costs: the same job with TLS beside one without, in turns."""
    options = ("--no-reproducible", "--logical_ranks", str(workers))
    plain, encrypted = [], []
    for _ in range(repeats):
        plain.append(run_ours(model, workers, options, count))
        encrypted.append(run_ours(model, workers, (*options, "--tls"), count))
        said = f"{model.name}, {workers} workers, TLS: {encrypted[-1]:.2f}/s, without {plain[-1]:.2f}/s"
        print(said, file=sys.stderr, flush=True)
    ratio = statistics.median(a / b for a, b in zip(encrypted, plain, strict=True))
    label = f"{model.name}, {workers} workers, reproducible off, --tls"
    medians = (statistics.median(encrypted), statistics.median(plain))
    return table.Row(label, "steps/s", *medians, "ours without TLS", f"{ratio:.3f} of it", None)


def _peer(one: Comparison, workers: int) -> str:
    accumulated = one.micro_batches // workers
    more = f", {accumulated} micro-batches each" * (accumulated > 1) + ", our malloc settings" * one.keeps_memory
    return f"DDP{more}"


def _row(model: Model, workers: int, one: Comparison, ours: list[float], theirs: list[float]) -> table.Row:
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return table.Row(
        f"{model.name}, {workers} worker{'s' * (workers > 1)}, {one.name}",
        "steps/s",
        statistics.median(ours),
        statistics.median(theirs),
        _peer(one, workers),
        f"{ratio:.3f} of it" if one.goal is None else f"{ratio:.3f} of it ≥ {one.goal:.2f}",
        None if one.goal is None else ratio >= one.goal,
    )


def run_ddp(model: Model, workers: int, one: Comparison, count: int) -> float:
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={workers}"]
    argv += [str(SCRIPT), "--size", model.size, "--global-batch", str(model.global_batch)]
    argv += ["--micro-batches", str(one.micro_batches // workers), "--steps", str(count)]
    return _run(argv, {"GLOO_SOCKET_IFNAME": "lo"} | (ALLOCATOR if one.keeps_memory else {}), count)


def run_ours(model: Model, workers: int, options: Sequence[str], count: int) -> float:
    number = str(workers)
    argv = [sys.executable, "-m", "elasticdl.cli", "train", "--job_name", "overhead", "--threads", "1"]
    argv += ["--model_zoo", str(MODELS), "--model_def", "mlp.forward", "--model_params", f"size={model.size}"]
    argv += ["--num_workers", number, "--min_workers", number, "--max_workers", number]
    argv += [
        "--global_batch_size",
        str(model.global_batch),
        "--max_steps",
        str(count),
        "--data_format",
        "python",
        "--training_data",
        "made-up",
    ]
    return _run([*argv, *options], {}, count)


def _run(argv: Sequence[str], environ: dict[str, str], count: int) -> float:
    """Steps per second in the later part of a whole run."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as scratch:
        directory = Path(scratch)
        ours = {"BENCH_STEPS_DIR": scratch, "OMP_NUM_THREADS": "1", "ELASTICDL_HOME": str(directory / "home")}
        done = subprocess.run(
            argv,
            env={**os.environ, **ours, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}\nended with exit code {done.returncode}:\n{done.stdout}")
        return steps.per_second(steps.read(directory), skip=count // 4)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
