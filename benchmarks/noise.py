"""What it costs to measure the noise of the gradient.

    python benchmarks/noise.py [--quick] [--json FILE]

Steps of one process on one thread, as a worker makes them: of eight updates one is measured, and with a single logical
rank the one before it is kept. Their processor time is compared with that of the others in the same run: medians, since
the difference is smaller than what a busy machine does to a single step.
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

Make = Callable[[], tuple[nn.Module, Tensor]]


def demo() -> tuple[nn.Module, Tensor]:
    """The net of the demo, with the batch of one of its four logical ranks."""
    return digits.forward(), torch.randn(32, 1, 8, 8)


def wide() -> tuple[nn.Module, Tensor]:
    """6.3 M weights and few records: all gradient, little computing."""
    layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, 10)), torch.randn(32, 1024)


def stepper(make: Make, ranks: int, share: int) -> Callable[[int], None]:
    """A function that makes step `number`."""
    torch.manual_seed(0)
    model, features = make()
    labels = torch.randint(10, (len(features),))
    squares, tail, batch = SquaredNorms(), StepReportLayout(ranks), AdaptiveBatch(LrScaling.NONE, ranks * len(features))
    meter = NoiseMeter(ranks, squares)
    gradients = GradientBuffers(
        model.parameters(), ReductionTree(ranks), tail.length, ordered=True, squares=squares
    ).register_hooks()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(number: int) -> None:
        meter.begin_update(number, batch)
        gradients.start_update(RankRange(0, share))
        for rank in range(share):
            gradients.backward(nn.functional.cross_entropy(model(features), labels), rank, 1 / ranks)
        reduced = gradients.node_sums()[0]
        own = OwnReport({}, len(features), vote=0, must_stop=False, squares=squares)
        tail.write(gradients.tail(reduced), 0, own)
        heard = tail.read(gradients.tail(reduced))
        estimate = meter.estimate(gradients.flat(reduced), heard.squares, heard.noise_parts, 1.0, 1.0)
        batch.record_update(Update(len(features), estimate=estimate, stands_for=MEASURE_EVERY_UPDATES))
        gradients.install(reduced)
        optimizer.step()
        gradients.uninstall()

    return step


def compare(name: str, make: Make, ranks: int, share: int, turns: int, goal: float | None = None) -> list[Row]:
    step = stepper(make, ranks, share)
    times: list[list[float]] = [
        [] for _ in range(MEASURE_EVERY_UPDATES)
    ]  # by place among eight: 0 is measured, the last is kept
    for number in range(MEASURE_EVERY_UPDATES * (turns + 1)):
        began = time.thread_time()
        step(number)
        if number >= MEASURE_EVERY_UPDATES:
            times[number % MEASURE_EVERY_UPDATES].append(time.thread_time() - began)
    plain = statistics.median(seconds for place in times[1:-1] for seconds in place)
    more = sum(statistics.median(place) - plain for place in (times[0], times[-1]))
    cost = more / MEASURE_EVERY_UPDATES / plain
    of = f"{name}, {share} of {ranks} logical ranks"
    return [
        Row(f"{of}: a step", "ms", 1e3 * plain * (1 + cost), 1e3 * plain, "those that are not measured"),
        Row(f"{of}: cost", "%", 100 * cost, None, "", *((f"< {goal:.0%}", cost < goal) if goal else ())),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    turns = 3 if options.quick else 120
    rows = [
        *compare("demo", demo, 4, 2, turns, GOAL),
        *compare("demo", demo, 1, 1, turns, GOAL),
        *compare("6.3 M weights", wide, 4, 2, max(3, turns // 6)),
        *compare("6.3 M weights", wide, 1, 1, max(3, turns // 6)),
    ]
    show("The noise of the gradient", rows, notes=[machine()])
    if options.json:
        write(options.json, rows)


if __name__ == "__main__":
    main()
