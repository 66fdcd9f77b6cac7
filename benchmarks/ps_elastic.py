"""The longest gap in applied updates while a ps is added, drained, and killed with a replica, with workers training.

    python benchmarks/ps_elastic.py [--quick] [--repeats N] [--json FILE]

A job of real processes: two workers train a DeepFM asynchronously on two ps with replicas. Every worker notes when
each of its pushes was answered; a gap is the longest time in which none of all workers was, from the command or the
signal until the fleet has settled again. Beside it the longest gap in some seconds in which nothing happens. The peer,
TensorFlow's ParameterServerStrategy, has a fixed set of ps and ends with the first one that is lost: it has no such
number.
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
SETTLED_S = 120.0
PEER = "TensorFlow ParameterServerStrategy"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repetition")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    gaps: dict[str, list[float]] = {"nothing happens": [], "added": [], "drained": [], "killed, with a replica": []}
    for _ in range(1 if options.quick else options.repeats):
        with tempfile.TemporaryDirectory() as directory, DisturbedJob(Path(directory)) as job:
            job.wait(lambda s: s.records > 20_000, "training")
            job.settle(2)
            gaps["nothing happens"].append(job.gap(lambda: time.sleep(3.0)))
            gaps["added"].append(job.gap(lambda: job.scale(3)))
            gaps["drained"].append(job.gap(lambda: job.scale(2)))
            gaps["killed, with a replica"].append(job.gap(job.kill))
        print({name: f"{found[-1]:.3f} s" for name, found in gaps.items()}, file=sys.stderr, flush=True)
    rows = []
    for name, found in gaps.items():
        for which, value in (("median", statistics.median(found)), ("worst", max(found))):
            measure = (
                f"longest gap in applied updates, a ps is {name}"
                if name != "nothing happens"
                else f"longest gap, {name}"
            )
            rows.append(table.Row(f"{measure}, {which}", "s", value, None, PEER if name != "nothing happens" else ""))
    table.show("Elastic ps, two workers training", rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


class DisturbedJob:
    """One job, disturbed from outside."""

    def __init__(self, directory: Path) -> None:
        self._pushed = directory / "pushed"
        self._pushed.mkdir()
        os.environ.update({HOME: str(directory / "home"), "ELASTICDL_PUSHED": str(self._pushed)})
        data = directory / "train.clicks"
        clicks.write_records(data, 100_000)
        self._job = elasticdl.submit(
            job_name="elastic", model_zoo=MODELS, model_def="noted_ctr.deepfm", training_data=data, minibatch_size=256,
            num_workers=2, num_ps_pods=2, ps_backups=1, ps_mode="async", num_epochs=10_000, threads=1,
        )  # fmt: skip

    def __enter__(self) -> DisturbedJob:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.kill()

    def wait(self, is_so: Callable[[JobStatus], bool], what: str) -> JobStatus:
        deadline = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline:
            status = self._job.status
            if is_so(status):
                return status
            time.sleep(0.05)
        raise TimeoutError(f"waited {SETTLED_S:g} s for {what}: {status.ps}")

    def settle(self, ps: int) -> None:
        """Until so many ps hold even numbers of slots, each with a whole copy elsewhere."""

        def is_settled(status: JobStatus) -> bool:
            serving = [server for server in status.ps if server.state == "serving"]
            is_even = all(1024 // ps <= server.slots <= 1024 // ps + 1 for server in serving)
            return len(serving) == ps and is_even and all(server.backup for server in serving)

        self.wait(is_settled, f"{ps} settled ps")

    def gap(self, disturb: Callable[[], None]) -> float:
        began = time.time()
        disturb()
        time.sleep(0.5)  # the last answers are noted
        return longest_gap(self._pushed, began, time.time())

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


def longest_gap(directory: Path, began: float, ended: float) -> float:
    """The longest time between two answered pushes of any worker."""
    times = sorted(float(line) for path in directory.iterdir() for line in path.read_text().split())
    inside = [began, *(at for at in times if began <= at <= ended), ended]
    return max(later - earlier for earlier, later in pairwise(inside))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
