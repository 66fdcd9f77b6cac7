"""What elasticity costs while nothing happens: steady throughput beside plain DistributedDataParallel.

    python benchmarks/overhead.py [--quick] [--repeats N] [--json FILE]

Same model, same records, same global batch, one thread per worker, one step file for both. The runs take turns
(DDP, ours, DDP, ours, …); a ratio is the median of the ratios of neighbours. Our workers keep their memory between
steps; DDP is also shown with the same settings of malloc, to show which part of the difference they explain. The last
row of each pair of workers compares a job with TLS to the same job without.
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

LOGICAL_RANKS = 8  # of the row beside DDP that accumulates as many micro-batches


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    size: str
    global_batch: int
    steps: int
    quick_steps: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Options of a job, and the number of micro-batches that DDP accumulates on all workers together."""

    name: str
    options: tuple[str, ...]
    micro_batches: int
    goal: float | None
    keeps_memory: bool = False  # DDP with our settings of malloc


MEASURED_MODELS = (
    Model("1.3 M weights", "small", global_batch=256, steps=300, quick_steps=150),
    Model("25 M weights", "large", global_batch=128, steps=60, quick_steps=25),
)


def comparisons(workers: int) -> tuple[Comparison, ...]:
    rank_options = ("--logical_ranks", str(workers))
    return (
        Comparison("reproducible off", ("--no-reproducible", *rank_options), workers, 0.97),
        Comparison(f"reproducible, V = {workers}", ("--reproducible", *rank_options), workers, 0.90),
        Comparison(
            f"reproducible, V = {LOGICAL_RANKS}",
            ("--reproducible", "--logical_ranks", str(LOGICAL_RANKS)),
            LOGICAL_RANKS,
            None,
        ),
        Comparison("reproducible off", ("--no-reproducible", *rank_options), workers, None, keeps_memory=True),
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", default="1,2", help="numbers of workers, separated by commas")
    parser.add_argument("--only", choices=[model.size for model in MEASURED_MODELS])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    repeats = 1 if options.quick else options.repeats

    rows, notes = [], [table.machine()]
    for model in MEASURED_MODELS:
        if options.only in (None, model.size):
            for workers in map(int, options.workers.split(",")):
                step_count = model.quick_steps if options.quick else model.steps
                rows += measure(model, workers, repeats, step_count)
                if workers > 1:
                    rows.append(measure_tls(model, workers, repeats, step_count))
    title = f"Steady throughput beside plain DDP ({repeats} repetitions, medians)"
    notes.append(table.machine())
    table.show(title, rows, notes=notes)
    if options.json:
        table.write(options.json, rows)
    return 0


def measure(model: Model, workers: int, repeats: int, step_count: int) -> list[table.Row]:
    all_comparisons = comparisons(workers)
    own_rates: dict[Comparison, list[float]] = {comparison: [] for comparison in all_comparisons}
    peer_rates: dict[Comparison, list[float]] = {comparison: [] for comparison in all_comparisons}
    for _ in range(repeats):
        for comparison in all_comparisons:
            peer_rates[comparison].append(run_ddp(model, workers, comparison, step_count))
            own_rates[comparison].append(run_ours(model, workers, comparison.options, step_count))
            progress = f"{model.name}, {workers} workers, {comparison.name}: ours {own_rates[comparison][-1]:.2f}/s"
            print(
                f"{progress}, {_peer_name(comparison, workers)} {peer_rates[comparison][-1]:.2f}/s",
                file=sys.stderr,
                flush=True,
            )
    return [
        _row(model, workers, comparison, own_rates[comparison], peer_rates[comparison])
        for comparison in all_comparisons
    ]


def measure_tls(model: Model, workers: int, repeats: int, step_count: int) -> table.Row:
    """Measures what encryption costs: the same job with TLS and without, in turns."""
    options = ("--no-reproducible", "--logical_ranks", str(workers))
    plain, encrypted = [], []
    for _ in range(repeats):
        plain.append(run_ours(model, workers, options, step_count))
        encrypted.append(run_ours(model, workers, (*options, "--tls"), step_count))
        progress = f"{model.name}, {workers} workers, TLS: {encrypted[-1]:.2f}/s, without {plain[-1]:.2f}/s"
        print(progress, file=sys.stderr, flush=True)
    ratio = statistics.median(a / b for a, b in zip(encrypted, plain, strict=True))
    label = f"{model.name}, {workers} workers, reproducible off, --tls"
    medians = (statistics.median(encrypted), statistics.median(plain))
    return table.Row(label, "steps/s", *medians, "ours without TLS", f"{ratio:.3f} of it", None)


def _peer_name(comparison: Comparison, workers: int) -> str:
    accumulated = comparison.micro_batches // workers
    details = (
        f", {accumulated} micro-batches each" * (accumulated > 1) + ", our malloc settings" * comparison.keeps_memory
    )
    return f"DDP{details}"


def _row(
    model: Model, workers: int, comparison: Comparison, own_rates: list[float], peer_rates: list[float]
) -> table.Row:
    ratio = statistics.median(a / b for a, b in zip(own_rates, peer_rates, strict=True))
    return table.Row(
        f"{model.name}, {workers} worker{'s' * (workers > 1)}, {comparison.name}",
        "steps/s",
        statistics.median(own_rates),
        statistics.median(peer_rates),
        _peer_name(comparison, workers),
        f"{ratio:.3f} of it" if comparison.goal is None else f"{ratio:.3f} of it ≥ {comparison.goal:.2f}",
        None if comparison.goal is None else ratio >= comparison.goal,
    )


def run_ddp(model: Model, workers: int, comparison: Comparison, step_count: int) -> float:
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={workers}"]
    argv += [str(SCRIPT), "--size", model.size, "--global-batch", str(model.global_batch)]
    argv += ["--micro-batches", str(comparison.micro_batches // workers), "--steps", str(step_count)]
    return _run(argv, {"GLOO_SOCKET_IFNAME": "lo"} | (ALLOCATOR if comparison.keeps_memory else {}), step_count)


def run_ours(model: Model, workers: int, options: Sequence[str], step_count: int) -> float:
    worker_count = str(workers)
    argv = [sys.executable, "-m", "elasticdl.cli", "train", "--job_name", "overhead", "--threads", "1"]
    argv += ["--model_zoo", str(MODELS), "--model_def", "mlp.forward", "--model_params", f"size={model.size}"]
    argv += ["--num_workers", worker_count, "--min_workers", worker_count, "--max_workers", worker_count]
    argv += [
        "--global_batch_size",
        str(model.global_batch),
        "--max_steps",
        str(step_count),
        "--data_format",
        "python",
        "--training_data",
        "made-up",
    ]
    return _run([*argv, *options], {}, step_count)


def _run(argv: Sequence[str], environ: dict[str, str], step_count: int) -> float:
    """Returns the steps per second in the later three quarters of a run."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as scratch:
        directory = Path(scratch)
        benchmark_environ = {
            "BENCH_STEPS_DIR": scratch,
            "OMP_NUM_THREADS": "1",
            "ELASTICDL_HOME": str(directory / "home"),
        }
        finished = subprocess.run(
            argv,
            env={**os.environ, **benchmark_environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if finished.returncode:
            raise SystemExit(f"{' '.join(argv)}\nended with exit code {finished.returncode}:\n{finished.stdout}")
        return steps.steps_per_s(steps.read_steps(directory), skip=step_count // 4)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
