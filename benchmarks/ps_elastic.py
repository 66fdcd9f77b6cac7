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
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import table

from elasticdl.launcher.local import processes
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from elasticdl.spec.directory import JobDirectory
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
        with tempfile.TemporaryDirectory() as place, Job(Path(place)) as job:
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


class Job:
    """One job, disturbed from outside."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._environ = {**os.environ, HOME: str(place / "home"), "ELASTICDL_PUSHED": str(place / "pushed")}
        self._directory = JobDirectory(place / "home" / "jobs" / "elastic")

    def __enter__(self) -> Job:
        (self._place / "pushed").mkdir()
        data = self._place / "train.clicks"
        clicks.write_records(data, 100_000)
        self._command(
            "train", "--detach", "--job_name=elastic", f"--model_zoo={MODELS}", "--model_def=noted_ctr.deepfm",
            f"--training_data={data}", "--minibatch_size=256", "--num_workers=2", "--num_ps_pods=2", "--ps_backups=1",
            "--ps_mode=async", "--num_epochs=10000", "--threads=1",
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        processes.kill_processes(self._directory)

    def wait(self, is_so: Callable[[pb.JobStatus], bool], what: str) -> pb.JobStatus:
        deadline = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline:
            with MasterClient.connect(self._directory, timeout_s=30.0) as master:
                status = master.status()
            if is_so(status):
                return status
            time.sleep(0.05)
        raise TimeoutError(f"waited {SETTLED_S:g} s for {what}: {status.ps}")

    def settle(self, ps: int) -> None:
        """Until so many ps hold even numbers of slots, each with a whole copy elsewhere."""

        def is_settled(status: pb.JobStatus) -> bool:
            serving = [one for one in status.ps if one.state == "serving"]
            is_even = all(1024 // ps <= one.slots <= 1024 // ps + 1 for one in serving)
            return len(serving) == ps and is_even and all(replica.backup for replica in serving)

        self.wait(is_settled, f"{ps} settled ps")

    def gap(self, disturb: Callable[[], None]) -> float:
        began = time.time()
        disturb()
        time.sleep(0.5)  # the last answers are noted
        return longest_gap(self._place / "pushed", began, time.time())

    def scale(self, ps: int) -> None:
        self._command("scale", "elastic", "--ps", str(ps))
        self.settle(ps)

    def kill(self) -> None:
        status = self.wait(lambda s: bool(s.ps), "ps")
        victim = next(one for one in status.ps if one.state == "serving")
        os.kill(victim.pid, signal.SIGKILL)
        self.wait(lambda s: all(one.id != victim.id or one.state != "serving" for one in s.ps), "the loss")
        self.settle(2)

    def _command(self, *arguments: str) -> None:
        argv = [sys.executable, "-m", "elasticdl.cli", *arguments]
        done = subprocess.run(argv, env=self._environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)


def longest_gap(directory: Path, began: float, ended: float) -> float:
    """The longest time between two answered pushes of any worker."""
    times = sorted(float(line) for path in directory.iterdir() for line in path.read_text().split())
    inside = [began, *(at for at in times if began <= at <= ended), ended]
    return max(later - earlier for earlier, later in pairwise(inside))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
