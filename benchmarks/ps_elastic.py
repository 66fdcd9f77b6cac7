"""The longest gap in applied updates while a ps is added, drained, and killed with a replica, with workers training.

    python benchmarks/ps_elastic.py [--quick] [--repeats N] [--json FILE]

A job of real processes: two workers train a DeepFM asynchronously on two ps with replicas. Every worker records when
each of its pushes was answered; a gap is the longest time in which no worker's push was answered, from the command or
the signal until the fleet has settled again. The table also shows the longest gap in some seconds in which nothing
happens. The peer, TensorFlow's ParameterServerStrategy, has a fixed set of ps and ends when one of them is lost, so it
has no such number.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import table

import elasticdl
from elasticdl.jobs import JobStatus
from elasticdl.spec.env import HOME
from elasticdl.zoo.ctr import data as clicks

MODELS = Path(__file__).parent / "models"
SETTLE_TIMEOUT_S = 120.0
PEER = "TensorFlow ParameterServerStrategy"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repetition")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    gaps_by_disturbance: dict[str, list[float]] = {
        "nothing happens": [],
        "added": [],
        "drained": [],
        "killed, with a replica": [],
    }
    for _ in range(1 if options.quick else options.repeats):
        with tempfile.TemporaryDirectory() as directory, DisturbedJob(Path(directory)) as job:
            job.wait(lambda s: s.records > 20_000, "training")
            job.settle(2)
            gaps_by_disturbance["nothing happens"].append(job.measure_gap(lambda: time.sleep(3.0)))
            gaps_by_disturbance["added"].append(job.measure_gap(lambda: job.scale(3)))
            gaps_by_disturbance["drained"].append(job.measure_gap(lambda: job.scale(2)))
            gaps_by_disturbance["killed, with a replica"].append(job.measure_gap(job.kill))
        print(
            {disturbance: f"{gaps_s[-1]:.3f} s" for disturbance, gaps_s in gaps_by_disturbance.items()},
            file=sys.stderr,
            flush=True,
        )
    rows = []
    for disturbance, gaps_s in gaps_by_disturbance.items():
        for statistic, value in (("median", statistics.median(gaps_s)), ("worst", max(gaps_s))):
            measure = (
                f"longest gap in applied updates, a ps is {disturbance}"
                if disturbance != "nothing happens"
                else f"longest gap, {disturbance}"
            )
            rows.append(
                table.Row(f"{measure}, {statistic}", "s", value, None, PEER if disturbance != "nothing happens" else "")
            )
    table.show("Elastic ps, two workers training", rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


class DisturbedJob:
    """A job that is disturbed from outside."""

    def __init__(self, directory: Path) -> None:
        self._pushed = directory / "pushed"
        self._pushed.mkdir()
        os.environ.update({HOME: str(directory / "home"), "ELASTICDL_PUSHED": str(self._pushed)})
        data = directory / "train.clicks"
        clicks.write_records(data, 100_000)
        self._job = elasticdl.submit(
            job_name="elastic", model_zoo=MODELS, model_def="timed_ctr.deepfm", training_data=data, minibatch_size=256,
            num_workers=2, num_ps_pods=2, ps_backups=1, ps_mode="async", num_epochs=10_000, threads=1,
        )  # fmt: skip

    def __enter__(self) -> DisturbedJob:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.kill()

    def wait(self, is_done: Callable[[JobStatus], bool], description: str) -> JobStatus:
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline:
            status = self._job.status
            if is_done(status):
                return status
            time.sleep(0.05)
        raise TimeoutError(f"waited {SETTLE_TIMEOUT_S:g} s for {description}: {status.ps}")

    def settle(self, ps: int) -> None:
        """Waits until `ps` ps hold even numbers of slots, each with a complete replica on another one."""

        def is_settled(status: JobStatus) -> bool:
            serving = [server for server in status.ps if server.state == "serving"]
            is_even = all(1024 // ps <= server.slots <= 1024 // ps + 1 for server in serving)
            return len(serving) == ps and is_even and all(server.backup for server in serving)

        self.wait(is_settled, f"{ps} settled ps")

    def measure_gap(self, disturb: Callable[[], None]) -> float:
        started_at = time.time()
        disturb()
        time.sleep(0.5)  # until the last answers are recorded
        return longest_gap(self._pushed, started_at, time.time())

    def scale(self, ps: int) -> None:
        self._job.scale(ps=ps)
        self.settle(ps)

    def kill(self) -> None:
        status = self.wait(lambda s: bool(s.ps), "ps")
        victim = next(server for server in status.ps if server.state == "serving")
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        self.wait(lambda s: all(server.name != victim.name or server.state != "serving" for server in s.ps), "the loss")
        self.settle(2)


def longest_gap(directory: Path, started_at: float, ended_at: float) -> float:
    """Returns the longest time between two answered pushes of any worker."""
    moments = sorted(float(line) for path in directory.iterdir() for line in path.read_text().split())
    window = [started_at, *(moment for moment in moments if started_at <= moment <= ended_at), ended_at]
    return max(later - earlier for earlier, later in pairwise(window))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
