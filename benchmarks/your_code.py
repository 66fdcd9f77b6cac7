"""What it costs to use one's own code: scripts with and without ElasticDL, a slow dataset, the guard.

    python benchmarks/your_code.py [--quick] [--repeats N] [--only NAME] [--json FILE]

Each script runs with one worker and one thread, with ElasticDL and without, in turns. It trains twice, for a few steps
and for many; only the difference counts, without imports and starts. A ratio is the median of the ratios of neighbours.
The guard's share is measured in one process: the time of digests as often as `--guard_steps` sets, over the time of the
steps between them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import slow_dataset
import torch
from table import Row, machine, show, write
from torch import nn

import elasticdl.torch as elastic
from elasticdl.spec import PlanSpec
from elasticdl.worker.training.consistency import ConsistencyGuard

EXAMPLES = Path(__file__).parent.parent / "examples"
GOAL = 0.95
GUARD_GOAL = 0.5  # percent of a step
LINES_GOAL = 8
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "1")


@dataclass(frozen=True, slots=True)
class Script:
    """A script that takes the length of its training as last arguments, with ElasticDL and without."""

    name: str
    ours: Path
    plain_command: tuple[str, ...]  # the arguments of `python`
    unit_steps: int  # steps of one unit of `short` and `long`
    options: Callable[[int], list[str]]
    short: int
    long: int
    quick: int


def step_options(steps: int) -> list[str]:
    return ["--epochs", "1000", "--steps", str(steps)]


def plain_command(example: str) -> tuple[str, ...]:
    return (str(EXAMPLES / example / "train.py"), "--plain")


SCRIPTS = (
    Script(
        "Lightning",
        EXAMPLES / "10-lightning" / "train.py",
        plain_command("10-lightning"),
        1,
        step_options,
        24,
        2424,
        624,
    ),
    Script(
        "HF", EXAMPLES / "11-hugging-face" / "train.py", plain_command("11-hugging-face"), 1, step_options, 20, 220, 120
    ),
    Script(
        "DDP",
        EXAMPLES / "09-from-ddp" / "train.py",
        (*TORCHRUN, str(EXAMPLES / "09-from-ddp" / "train_ddp.py")),
        29,
        lambda epochs: [str(epochs)],
        5,
        205,
        55,
    ),
)


def run_seconds(command: Sequence[str]) -> float:
    """Returns how long a command takes in an empty directory."""
    with tempfile.TemporaryDirectory() as directory:
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "ELASTICDL_HOME": directory}
        started_at = time.perf_counter()
        finished = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, check=False)
        if finished.returncode:
            raise SystemExit(f"{' '.join(command)}\n{finished.stdout[-2000:]}\n{finished.stderr[-2000:]}")
        return time.perf_counter() - started_at


def steps_per_s(command: Sequence[str], script: Script, long: int) -> float:
    """Returns the steps per second of the steps between the short and the long run."""
    short_s, long_s = (run_seconds([*command, *script.options(units)]) for units in (script.short, long))
    return (long - script.short) * script.unit_steps / (long_s - short_s)


def compare(script: Script, repeats: int, *, is_quick: bool) -> Row:
    long = script.quick if is_quick else script.long
    elasticdl = [sys.executable, "-m", "elasticdl.cli", "run", "--threads", "1", "--workers", "1", str(script.ours)]
    ours, peers = [], []
    for _ in range(repeats):
        peers.append(steps_per_s([sys.executable, *script.plain_command], script, long))
        ours.append(steps_per_s(elasticdl, script, long))
    ratios = [our / peer for our, peer in zip(ours, peers, strict=True)]
    ratio = statistics.median(ratios)
    goal = f"{ratio:.3f} (worst {min(ratios):.3f}) of its steps/s ≥ {GOAL}"
    return Row(
        f"{script.name} script, one worker", "steps/s", statistics.median(ours), statistics.median(peers),
        "itself without us", goal, ratio >= GOAL,
    )  # fmt: skip


def guard_share(width: int, steps: int) -> Row:
    """Measures the time of the digests in `steps` steps, in percent of the time of these steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.utils.data.TensorDataset(torch.randn(64 * 16, 64), torch.randint(0, 10, (64 * 16,)))
    job = elastic.join(model, optimizer, data, global_batch_size=64, epochs=steps, max_steps=steps)
    guard_steps = PlanSpec().guard_steps
    guard, guard_s, started_at = ConsistencyGuard(guard_steps), 0.0, 0.0
    for step in job:
        if step.number == 1:  # the first one warms up
            started_at, guard_s = time.perf_counter(), 0.0
        for features, labels in step:
            step.backward(nn.functional.cross_entropy(model(features), labels))
        clock_before, guard_before = time.perf_counter(), time.perf_counter()
        guard.digest(job.training, is_whole=guard.is_due(step.number, is_saved=False))
        clock_s = guard_before - clock_before  # the time that the clock itself takes does not count
        guard_s += time.perf_counter() - guard_before - clock_s
    percent = 100 * guard_s / (time.perf_counter() - started_at - guard_s)
    weights = sum(parameter.numel() for parameter in model.parameters())
    goal = f"≤ {GUARD_GOAL} % of a step"
    return Row(f"the guard, {weights / 1e6:.1f} M weights", "%", percent, None, "", goal, percent <= GUARD_GOAL)


def changed_lines() -> list[Row]:
    """Counts the lines that the port of the DDP example adds and deletes, as git does, including blank ones."""
    command = ["git", "diff", "--no-index", "--numstat", "train_ddp.py", "train.py"]
    finished = subprocess.run(command, cwd=EXAMPLES / "09-from-ddp", capture_output=True, text=True, check=False)
    added, deleted = map(int, finished.stdout.split()[:2])
    goal = f"≤ {LINES_GOAL}"
    return [
        Row("lines changed to port the DDP example", "lines", float(added), None, "", goal, added <= LINES_GOAL),
        Row("lines of the DDP example that fall away", "lines", float(deleted), None, "", "", None),
    ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["scripts", "data", "guard", "lines"], help="run only this part")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    repeats = 1 if options.quick else options.repeats
    parts: dict[str, Callable[[], list[Row]]] = {
        "scripts": lambda: [compare(script, repeats, is_quick=options.quick) for script in SCRIPTS],
        "data": lambda: slow_dataset.measure(*((512, 1) if options.quick else (2048, repeats))),
        "guard": lambda: [guard_share(width, 301 if options.quick else 1001) for width in (256, 1024)],
        "lines": changed_lines,
    }
    rows = [row for name, measure in parts.items() if options.only in (None, name) for row in measure()]
    show("Your own code", rows, notes=[machine()])
    if options.json:
        write(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
