"""Samples per second of a DeepFM on parameter servers, beside plain PyTorch and TensorFlow, and by number of workers.

    python benchmarks/ctr_throughput.py [--quick] [--repeats N] [--no-peer] [--json FILE]

The model has 26 categorical and 13 numeric columns, 16 columns of factors, and a network of 256 and 128. First, one
worker trains on one ps, as a job of real processes; (a) is the same model in one process with sparse nn.Embedding, (b)
Keras on TensorFlow's ParameterServerStrategy. Then workers pull, compute for a fixed time (they sleep, so that few
cores are enough) and push: by number of workers, on one ps and, where that one is the limit, on two.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import table
from peers import environment
from ps_processes import SPAWN, TOKEN, run_fleet

import elasticdl
from elasticdl.jobs import JobStatus
from elasticdl.ps.client.lookups import EmbeddingLookups
from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.table import TableSpec
from elasticdl.spec.env import HOME
from elasticdl.zoo.ctr import data as clicks

BATCH = 1024
RECORDS = 200_000
GOAL_TORCH, GOAL_TENSORFLOW, GOAL_LINEAR = 0.8, 3.0, 0.9
PEERS = Path(__file__).parent / "peers"
ZOO = Path(clicks.__file__).parents[1]

COMPUTE_S = 0.25  # of a batch in a simulated worker
SMALL_BATCH = 256
PS_SHARE, WORKERS = 0.1, 12
TABLES = [
    TableSpec(name="weights", columns=1, optimizer=Optimizer(rule="adagrad")),
    TableSpec(name="factors", columns=16, optimizer=Optimizer(rule="adagrad")),
]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition, up to four workers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true", help="without TensorFlow, installed on the first run")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    repeats = 1 if options.quick else options.repeats
    peer = None if options.no_peer else environment.tensorflow()
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "train.clicks"
        clicks.write_records(data, 50_000 if options.quick else RECORDS)
        rows = _rows_of_one_worker(data, repeats, peer, 30 if options.quick else 100)
    rows += _rows_of_many_workers((1, 2, 4) if options.quick else (1, 2, 4, 8, 16), seconds=3 if options.quick else 8)
    rows += [_row_of_saturated_ps(seconds=2 if options.quick else 6, repeats=repeats)]
    title = f"CTR training: DeepFM, batches of {BATCH:,} ({repeats} repetitions, medians)"
    table.show(title, rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


# ---- one worker, beside the peers


def _rows_of_one_worker(data: Path, repeats: int, peer: Path | None, steps: int) -> list[table.Row]:
    own_rates, torch_rates, tensorflow_rates = [], [], []
    for _ in range(repeats):
        own_rates.append(_measure_job(data, threads=1))  # the other core is for the ps
        torch_rates.append(
            max(_measure_peer([sys.executable], "torch_ctr.py", data, steps, threads) for threads in ("1", "2"))
        )
        message = f"ours {own_rates[-1]:,.0f}, plain PyTorch {torch_rates[-1]:,.0f}"
        if peer is not None:
            tensorflow_rates.append(_measure_peer([str(peer / "python")], "tensorflow_ctr.py", data, steps))
            message += f", TensorFlow {tensorflow_rates[-1]:,.0f}"
        print(f"{message} samples/s", file=sys.stderr, flush=True)
    own_rate, torch_rate = statistics.median(own_rates), statistics.median(torch_rates)
    rows = [
        table.Row(
            "one worker on ps", "samples/s", own_rate, torch_rate, "(a) plain PyTorch, sparse nn.Embedding",
            f"{own_rate / torch_rate:.2f} of it ≥ {GOAL_TORCH:g}", own_rate >= GOAL_TORCH * torch_rate,
        )
    ]  # fmt: skip
    if tensorflow_rates:
        tensorflow_rate = statistics.median(tensorflow_rates)
        rows.append(
            table.Row(
                "one worker on ps",
                "samples/s",
                own_rate,
                tensorflow_rate,
                "(b) TensorFlow ParameterServerStrategy with Keras",
                f"{own_rate / tensorflow_rate:.1f} of it ≥ {GOAL_TENSORFLOW:g}",
                own_rate >= GOAL_TENSORFLOW * tensorflow_rate,
            )
        )
    return rows


def _measure_job(data: Path, **options: Any) -> float:
    """Returns samples/s of a job with one worker and one ps, between a fifth and nine tenths of its records."""
    with tempfile.TemporaryDirectory() as home:
        os.environ[HOME] = home
        progress: list[tuple[float, int]] = []

        def record_progress(status: JobStatus) -> None:
            if status.total_records and 0.2 <= status.records / status.total_records <= 0.9:
                progress.append((status.updated_at, status.records))

        with elasticdl.submit(
            job_name="ctr", model_zoo=ZOO, model_def="ctr.ctr.deepfm", training_data=data, minibatch_size=BATCH,
            num_workers=1, num_ps_pods=1, num_epochs=2, **options,
        ) as job:  # fmt: skip
            job.wait(on_progress=record_progress).raise_for_failure()
    (started_at, first_records), (ended_at, last_records) = progress[0], progress[-1]
    return (last_records - first_records) / (ended_at - started_at)


def _measure_peer(interpreter: Sequence[str], script: str, data: Path, steps: int, *arguments: str) -> float:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    argv = [*interpreter, "-W", "ignore", str(PEERS / script), str(data), str(BATCH), str(steps), *arguments]
    finished = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    (rate,) = [line.split()[1] for line in finished.stdout.splitlines() if line.startswith("RATE")]
    return float(rate)


# ---- many workers


def _rows_of_many_workers(counts: Sequence[int], seconds: float) -> list[table.Row]:
    rows, single_rate = [], 0.0
    for workers in counts:
        with run_fleet(1, threads=2) as ps:
            rate = _measure_aggregate_rate(ps, workers, COMPUTE_S, seconds)
        print(f"{workers} workers: {rate:,.0f} samples/s", file=sys.stderr, flush=True)
        single_rate = single_rate or rate
        linear_rate = workers * single_rate
        rows.append(
            table.Row(
                f"{workers} workers on 1 ps, {1000 * COMPUTE_S:.0f} ms of compute",
                "samples/s",
                rate,
                linear_rate,
                "linear",
                f"{rate / linear_rate:.2f} of it ≥ {GOAL_LINEAR:g}" if workers > 1 else "",
                rate >= GOAL_LINEAR * linear_rate if workers > 1 else None,
            )
        )
    return rows


def _row_of_saturated_ps(seconds: float, repeats: int) -> table.Row:
    """Measures workers that only pull and push, on ps that have a small share of a processor each, as in containers."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for count, ps_rates in rates.items():
            with run_fleet(count, threads=1, share=PS_SHARE) as ps:
                ps_rates.append(_measure_aggregate_rate(ps, WORKERS, 0.0, seconds))
    single_rate, double_rate = statistics.median(rates[1]), statistics.median(rates[2])
    name = f"2 ps, where 1 ps saturates, each with {PS_SHARE:.0%} of a processor"
    return table.Row(
        name,
        "samples/s",
        double_rate,
        single_rate,
        "1 ps",
        f"{double_rate / single_rate:.2f} of it > 1",
        double_rate > single_rate,
    )


def _measure_aggregate_rate(ps: FleetView, workers: int, compute_s: float, seconds: float) -> float:
    """Returns the samples per second of all workers together, once all of them have started."""
    pipes = []
    for number in range(workers):
        own_end, worker_end = SPAWN.Pipe()
        SPAWN.Process(
            target=_simulate_worker,
            args=(ps.to_proto().SerializeToString(), number, compute_s, worker_end),
            daemon=True,
        ).start()
        pipes.append(own_end)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send(seconds)
    return sum(pipe.recv() for pipe in pipes)


def _simulate_worker(ps: bytes, number: int, compute_s: float, connection: Connection) -> None:
    """Pulls, computes and pushes as a worker does: the next pull and the last push overlap with the computation."""
    from elasticdl.rpc import elasticdl_pb2 as pb

    client = PsClient(FleetView.from_proto(pb.Fleet.FromString(ps)), TOKEN, timeout_s=60.0).open()
    lookups = EmbeddingLookups(client, depth=2)
    lookups.declare(TABLES)
    batches = [
        clicks.make_records(np.arange(start, start + SMALL_BATCH), seed=number)[0]["ids"].reshape(-1)
        for start in range(0, 16 * SMALL_BATCH, SMALL_BATCH)
    ]
    step = 0

    def train() -> None:
        nonlocal step
        lookups.begin_batch()
        lookups_by_table = {spec.name: lookups.lookup(spec.name, batches[step % len(batches)]) for spec in TABLES}
        lookups.prefetch({spec.name: batches[(step + 1) % len(batches)] for spec in TABLES})
        time.sleep(compute_s)
        for name, lookup in lookups_by_table.items():
            lookups.add_gradients(name, lookup, np.ones_like(lookup.rows))
        step += 1
        lookups.push_gradients(sender=number, number=step, rate=0.01, step=step)

    for _ in range(4):
        train()
    lookups.wait_for_pushes()
    connection.send("ready")
    seconds, samples = connection.recv(), 0
    started_at = time.perf_counter()
    while time.perf_counter() - started_at < seconds:
        train()
        samples += SMALL_BATCH
    lookups.wait_for_pushes()
    connection.send(samples / (time.perf_counter() - started_at))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
