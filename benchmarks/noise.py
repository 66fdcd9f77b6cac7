"""What it costs to measure the gradient noise.

    python benchmarks/noise.py [--quick] [--json FILE]

One process runs steps on one thread, as a worker does: one of eight updates is measured, and with a single logical rank
the gradient of the one before it is kept. Their processor time is compared with that of the other steps in the same
run, by medians, because a busy machine changes a single step by more than the difference.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from table import Row, machine, show, write
from torch import Tensor, nn

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.collective.tree import RankRange, ReductionTree
from elasticdl.spec import LrScaling
from elasticdl.worker.rounds.step_report import OwnReport, StepReportLayout
from elasticdl.worker.training.adaptive_batch import MEASURE_EVERY_UPDATES, AdaptiveBatch, NoiseMeter, Update
from elasticdl.zoo.digits import digits

GOAL = 0.02

ModelFactory = Callable[[], tuple[nn.Module, Tensor]]


def demo_model() -> tuple[nn.Module, Tensor]:
    """The net of the demo, with the batch of one of its four logical ranks."""
    return digits.forward(), torch.randn(32, 1, 8, 8)


def wide_model() -> tuple[nn.Module, Tensor]:
    """A model of 6.3 M weights with few records: its gradient dominates, with little computation."""
    layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, 10)), torch.randn(32, 1024)


def make_stepper(create_model: ModelFactory, ranks: int, share: int) -> Callable[[int], None]:
    """Returns a function that runs the step with a number."""
    torch.manual_seed(0)
    model, features = create_model()
    labels = torch.randint(10, (len(features),))
    squares, report_layout = SquaredNorms(), StepReportLayout(ranks)
    batch = AdaptiveBatch(LrScaling.NONE, ranks * len(features))
    meter = NoiseMeter(ranks, squares)
    gradients = GradientBuffers(
        model.parameters(), ReductionTree(ranks), report_layout.length, ordered=True, squares=squares
    ).register_hooks()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(number: int) -> None:
        meter.begin_update(number, batch)
        gradients.start_update(RankRange(0, share))
        for rank in range(share):
            gradients.backward(nn.functional.cross_entropy(model(features), labels), rank, 1 / ranks)
        reduced = gradients.node_sums()[0]
        own_report = OwnReport({}, len(features), vote=0, must_stop=False, squares=squares)
        report_layout.write(gradients.tail(reduced), 0, own_report)
        report = report_layout.read(gradients.tail(reduced))
        estimate = meter.estimate(gradients.flat(reduced), report.squares, report.noise_parts, 1.0, 1.0)
        batch.record_update(Update(len(features), estimate=estimate, stands_for=MEASURE_EVERY_UPDATES))
        gradients.install(reduced)
        optimizer.step()
        gradients.uninstall()

    return step


def compare(
    name: str, create_model: ModelFactory, ranks: int, share: int, turns: int, goal: float | None = None
) -> list[Row]:
    step = make_stepper(create_model, ranks, share)
    # By position among eight updates: the first is measured, the gradient of the last is kept.
    times: list[list[float]] = [[] for _ in range(MEASURE_EVERY_UPDATES)]
    for number in range(MEASURE_EVERY_UPDATES * (turns + 1)):
        started_at = time.thread_time()
        step(number)
        if number >= MEASURE_EVERY_UPDATES:
            times[number % MEASURE_EVERY_UPDATES].append(time.thread_time() - started_at)
    unmeasured_s = statistics.median(seconds for durations_s in times[1:-1] for seconds in durations_s)
    added_s = sum(statistics.median(durations_s) - unmeasured_s for durations_s in (times[0], times[-1]))
    cost = added_s / MEASURE_EVERY_UPDATES / unmeasured_s
    case = f"{name}, {share} of {ranks} logical ranks"
    return [
        Row(
            f"{case}: a step", "ms", 1e3 * unmeasured_s * (1 + cost), 1e3 * unmeasured_s, "those that are not measured"
        ),
        Row(f"{case}: cost", "%", 100 * cost, None, "", *((f"< {goal:.0%}", cost < goal) if goal else ())),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    turns = 3 if options.quick else 120
    rows = [
        *compare("demo", demo_model, 4, 2, turns, GOAL),
        *compare("demo", demo_model, 1, 1, turns, GOAL),
        *compare("6.3 M weights", wide_model, 4, 2, max(3, turns // 6)),
        *compare("6.3 M weights", wide_model, 1, 1, max(3, turns // 6)),
    ]
    show("The noise of the gradient", rows, notes=[machine()])
    if options.json:
        write(options.json, rows)


if __name__ == "__main__":
    main()
