"""Shows an elastic job live: it starts with two workers, a third joins, one is killed, one is taken away.

`make demo` runs this with the `elasticdl` command line. At the end it checks that no record was lost, and fails if a
check does. `python examples/demo.py --pictures docs/images` also draws the pictures of the documents: terminal.svg,
the view just after the kill, and timeline.png.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elasticdl.jobs import Job, WorkerStatus

OUTPUT = Path("demo-output").absolute()
JOB = "demo"
LOGICAL_RANKS, BATCH = 4, 128
DURATION_S = 35.0  # long enough for all events; it determines the number of epochs
EVENT_TIMEOUT_S = 120.0  # for a single event, on a busy machine
TERMINAL_COLUMNS = 132
ELASTICDL = [sys.executable, "-m", "elasticdl.cli"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--pictures", type=Path, metavar="DIR", help="write the pictures of the documents to this directory"
    )
    pictures: Path | None = parser.parse_args().pictures
    os.environ["ELASTICDL_HOME"] = str(OUTPUT / "home")
    for name in ("data", "home", "model"):
        shutil.rmtree(OUTPUT / name, ignore_errors=True)
    from elasticdl.zoo.digits import data

    training, test = data.write_data(OUTPUT / "data")
    records = len(training.read_text().splitlines()) - 1
    epochs = choose_epochs(records)
    print(
        f"Training a convolutional net on {records:,} digits, {epochs} epochs.\n"
        "It starts with 2 workers; a third joins; one is killed with SIGKILL and replaced; one is taken away.\n",
        flush=True,
    )
    # The job draws in this terminal. Ctrl-C reaches it directly, and this process waits for its end.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    job = subprocess.Popen([*ELASTICDL, *train_command(training, test, epochs)])
    try:
        killed = Director(job, pictures).direct()
    except DemoError as problem:
        if job.poll() is None:
            subprocess.run([*ELASTICDL, "stop", JOB, "--now"], check=False)
        code = job.wait()
        print(f"demo: {problem}; the job ended with exit code {code}", file=sys.stderr)
        return 130 if code == 130 else 1
    code = job.wait()
    if pictures:
        directory = find_job().directory
        assert directory is not None
        shutil.copy(directory / "timeline.png", pictures / "timeline.png")
    return check_claims(code, killed, records * epochs)


def train_command(training: Path, test: Path, epochs: int) -> list[str]:
    from elasticdl import zoo

    return [
        "train",
        f"--job_name={JOB}",
        f"--model_zoo={Path(zoo.__file__).parent}",
        "--model_def=digits.digits.forward",
        f"--training_data={training}",
        f"--validation_data={test}",
        f"--num_epochs={epochs}",
        "--num_workers=2",
        "--max_workers=4",
        f"--logical_ranks={LOGICAL_RANKS}",
        f"--global_batch_size={BATCH}",
        f"--evaluation_epochs={max(1, epochs // 10)}",
        "--checkpoint_steps=200",
        "--threads=1",
        f"--output={OUTPUT / 'model'}",
    ]


def choose_epochs(records: int) -> int:
    """Returns the epochs with which the job takes about DURATION_S here. Times some steps of the model for this."""
    program = (
        "import time, torch; from elasticdl.zoo.digits import digits\n"
        "torch.set_num_threads(1); model = digits.forward()\n"
        f"images, labels = torch.zeros({BATCH // LOGICAL_RANKS}, 1, 8, 8), "
        f"torch.zeros({BATCH // LOGICAL_RANKS}, dtype=torch.long)\n"
        "def step(): digits.loss(labels, model(images)).backward()\n"
        "def timed(): begin = time.perf_counter(); step(); return time.perf_counter() - begin\n"
        # The fastest step: other load on this machine slows down the job and the events alike.
        "print(min(timed() for _ in range(100)))"
    )
    timed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # Each of two workers computes half the logical ranks. With such a small model, reading the records, reducing and
    # applying the gradient take several times as long as this.
    step_s = float(timed.stdout) * LOGICAL_RANKS / 2 * 7
    return max(10, min(2000, math.ceil(DURATION_S / step_s / math.ceil(records / BATCH))))


class DemoError(Exception):
    """An expected event did not happen."""


class Director:
    """Disturbs the job, step by step: each step waits until the one before has had its effect."""

    def __init__(self, job: subprocess.Popen[bytes], pictures: Path | None) -> None:
        self._job = job
        self._pictures = pictures

    def direct(self) -> str:
        """Lets a worker join, kills one and removes one. Returns the name of the killed worker."""
        self._print("waiting for two workers")
        self._wait_until("two workers train", lambda: len(self._members()) == 2 and self._step() > 20)
        self._print("adding a third worker")
        self._scale(3)
        self._wait_until("a third worker joins", lambda: len(self._members()) == 3)
        self._wait_for_steps(40)
        members = self._members()
        victim = members[1]
        self._print(f"killing {victim.name}, process {victim.pid}, with SIGKILL")
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        self._wait_until(f"{victim.name} is reported as lost", lambda: victim.name in self._events("worker-lost"))
        if self._pictures:
            self._wait_until(
                "a replacement is launched", lambda: self._events("worker-launched")[-1] != members[-1].name
            )
            draw_terminal(self._pictures / "terminal.svg")
        self._wait_until("the replacement joins", lambda: len(self._members()) == 3)
        self._wait_for_steps(40)
        self._print("taking one worker away")
        self._scale(2)
        self._wait_until("one worker leaves", lambda: bool(self._events("worker-left")))
        self._print("waiting for the end")
        return victim.name

    def _print(self, text: str) -> None:
        # In a terminal the job's own view shows it, and a printed line would break this view.
        if not sys.stdout.isatty():
            print(f"demo: {text}", flush=True)

    def _scale(self, workers: int) -> None:
        from elasticdl.errors import ElasticDLError

        try:
            find_job().scale(workers=workers)
        except ElasticDLError as exc:
            raise DemoError(f"cannot scale to {workers}: {exc}") from exc

    def _wait_until(self, text: str, is_done: Callable[[], bool]) -> None:
        from elasticdl.errors import ElasticDLError

        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while True:
            has_ended = self._job.poll() is not None  # read first, so that the check below sees everything until then
            try:
                if is_done():
                    return
            except ElasticDLError:
                pass  # the job has not started, or its master is unreachable
            if has_ended:
                raise DemoError(f"the job ended before this happened: {text}")
            if time.monotonic() > deadline:
                raise DemoError(f"waited {EVENT_TIMEOUT_S:.0f} s in vain for this: {text}")
            time.sleep(0.2)

    def _wait_for_steps(self, steps: int) -> None:
        """Waits until the job has trained some more steps."""
        after = self._step() + steps
        self._wait_until(f"step {after}", lambda: self._step() >= after)

    def _step(self) -> int:
        return find_job().status.step

    def _members(self) -> list[WorkerStatus]:
        """Returns the workers that train, by rank."""
        members = [worker for worker in find_job().status.workers if worker.rank is not None]
        return sorted(members, key=lambda worker: worker.rank or 0)

    def _events(self, kind: str) -> list[str]:
        return [event.replica or "" for event in find_job().events() if event.kind == kind]


def find_job() -> Job:
    import elasticdl

    return elasticdl.jobs.find(JOB, on="local")


def draw_terminal(path: Path) -> None:
    """Draws the present view of the job, as an SVG that needs no embedded font."""
    from rich.console import Console

    from elasticdl.cli.screens import job_panel

    console = Console(record=True, width=TERMINAL_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(job_panel.job_panel(find_job().status))
    svg = console.export_svg(title="elasticdl train")
    svg = re.sub(r"@font-face \{.*?\n    \}\n|<!--.*?-->", "", svg, flags=re.DOTALL)
    path.write_text(svg.replace("Fira Code, monospace", "monospace").replace("arial", "sans-serif"))


def check_claims(code: int, killed: str, planned: int) -> int:
    """Checks the results of the job, prints each check, and returns the exit code."""
    job = find_job()
    status, events = job.status, job.events()
    kinds = [(event.kind, event.replica) for event in events]
    joined = [worker for kind, worker in kinds if kind == "worker-joined"]
    left = [event for event in events if event.kind == "worker-left" and "scaled to 2" in event.reason]
    accuracy = status.metrics.get("accuracy", 0.0)
    assert job.directory is not None
    timeline, model = job.directory / "timeline.png", OUTPUT / "model"
    checks = {
        f"the job succeeded (exit code {code})": code == 0 and status.phase == "succeeded",
        f"{len(joined)} workers joined: 2, a third, and a replacement": len(set(joined)) >= 4,
        f"{killed} was lost to SIGKILL": ("worker-lost", killed) in kinds,
        f"{left[0].replica if left else 'nobody'} was taken away": bool(left),
        f"{status.records:,} of {planned:,} records trained, none lost, none twice": status.records
        == status.total_records
        == planned,
        f"accuracy {accuracy:.4f} on digits that were not trained on, at least 0.9": accuracy >= 0.9,
        f"model in {model}": model.is_dir() and any(model.iterdir()),
        f"timeline in {timeline}": timeline.is_file(),
    }
    for claim, holds in checks.items():
        print(f"  {'ok ' if holds else 'NOT'} {claim}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
