"""From backward passes to an estimate: the same in every member, for any number of them, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.collective.tree import ReductionTree, split_ranks
from elasticdl.spec import LrScaling
from elasticdl.worker.rounds.step_report import OwnReport, StepReportLayout
from elasticdl.worker.training.adaptive_batch import (
    MEASURE_EVERY_UPDATES,
    AdaptiveBatch,
    NoiseEstimate,
    NoiseMeter,
    Update,
    estimate_from_parts,
)

SIZES = {(0, 0): 3, (1, 0): 3, (2, 0): 2, (0, 1): 3, (1, 1): 2, (2, 1): 2}  # by logical rank and pass
RANKS, PASSES = 3, 2
PLANNED, GLOBAL_BATCH = sum(SIZES.values()), 8


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2))


def loss(net: nn.Module, rank: int, index: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(10 * rank + index)
    return net(torch.randn(SIZES[rank, index], 6, generator=generator)).pow(2).mean()


def step(counts: list[int], *, measures: bool) -> tuple[torch.Tensor, NoiseEstimate | None]:
    """An update of two passes by these members: returns the sum, and the estimate from their tails."""
    tree, layout = ReductionTree(RANKS), StepReportLayout(RANKS)
    rows, nodes, meters = [], [], []
    batch = AdaptiveBatch(LrScaling.SQRT, GLOBAL_BATCH)
    batch.scale = PASSES
    for member, share in enumerate(split_ranks(counts)):
        net, squares = model(), SquaredNorms()
        gradients = GradientBuffers(
            net.parameters(), tree, layout.length, ordered=True, squares=squares if measures else None
        ).register_hooks()
        meters.append(NoiseMeter(RANKS, squares))
        meters[-1].begin_update(0, batch)
        gradients.start_update(share)
        for rank in range(share.first, share.stop):
            for index in range(PASSES):
                gradients.backward(
                    loss(net, rank, index),
                    rank,
                    SIZES[rank, index] / PLANNED,
                    is_first=index == 0,
                    is_last=index == PASSES - 1,
                )
        sums = gradients.node_sums()
        layout.write(gradients.tail(sums[0]), member, OwnReport({}, 1, 0, must_stop=False, squares=squares))
        rows += [buffer.clone() for buffer in sums]
        nodes += gradients.share_nodes(share)
    for into, row in tree.plan_additions(nodes):
        rows[into] += rows[row]
    report, flat = layout.read(gradients.tail(rows[0])), gradients.flat(rows[0])
    estimates = [
        meter.estimate(flat, report.squares, report.noise_parts, PLANNED / GLOBAL_BATCH, 1.0) for meter in meters
    ]
    assert len(set(estimates)) == 1, "all members come to the same numbers"
    return flat.clone(), estimates[0]


def oracle() -> NoiseEstimate | None:
    parts = []
    for rank in range(RANKS):
        for index in range(PASSES):
            net = model()
            gradients = torch.autograd.grad(loss(net, rank, index), list(net.parameters()))
            flat = torch.cat([part.reshape(-1) for part in gradients]).double().numpy()
            parts.append((SIZES[rank, index] / PLANNED, flat))
    local = float(sum(weight * flat @ flat for weight, flat in parts))
    gradient = np.sum([weight * flat for weight, flat in parts], axis=0)
    return estimate_from_parts(local, float(gradient @ gradient), len(parts), PLANNED / GLOBAL_BATCH)


@pytest.mark.parametrize("counts", [[3], [1, 2], [2, 1], [1, 1, 1]])
def test_the_estimate_is_that_of_the_oracle_and_has_the_same_bits_for_any_number_of_members(counts: list[int]) -> None:
    flat, estimate = step(counts, measures=True)
    alone, alone_estimate = step([3], measures=True)
    expected = oracle()

    assert estimate is not None and expected is not None
    assert estimate == alone_estimate
    assert torch.equal(flat, alone)
    assert estimate[:2] == pytest.approx(expected[:2], rel=1e-5)


@pytest.mark.parametrize("counts", [[3], [2, 1]])
def test_measuring_changes_no_bit_of_the_gradient(counts: list[int]) -> None:
    assert torch.equal(step(counts, measures=True)[0], step(counts, measures=False)[0])


def measure_steps(meter: NoiseMeter, squares: SquaredNorms, batch: AdaptiveBatch, steps: range) -> list[int]:
    """The steps whose updates are measured."""
    measured_steps = []
    for number in steps:
        meter.begin_update(number, batch)
        if squares.is_on:
            measured_steps.append(number)
            batch.record_update(Update(8, estimate=NoiseEstimate(1.0, 1.0), batch_scale=batch.scale))
    return measured_steps


def test_the_first_update_and_every_eighth_are_measured() -> None:
    batch, squares = AdaptiveBatch(LrScaling.NONE, 8), SquaredNorms()

    assert measure_steps(NoiseMeter(4, squares), squares, batch, range(3, 30)) == [3, 8, 16, 24]


def test_updates_with_one_part_are_compared_with_the_previous_update() -> None:
    batch, squares = AdaptiveBatch(LrScaling.NONE, 8), SquaredNorms()
    meter, measured_steps = NoiseMeter(1, squares), []
    gradients = list(torch.randn(2 * MEASURE_EVERY_UPDATES + 1, 16, generator=torch.Generator().manual_seed(3)))
    for number, flat in enumerate(gradients):
        meter.begin_update(number, batch)
        assert not squares.is_on, "there is nothing to compare within the update"
        estimate = meter.estimate(flat, (), 1, 1.0, 1.0)
        batch.record_update(Update(8, estimate=estimate))
        if estimate is not None:
            expected = (flat - gradients[number - 1]).square().sum() / 2
            assert estimate.variance == pytest.approx(float(expected), rel=1e-5)
            measured_steps.append(number)

    assert measured_steps == [1, MEASURE_EVERY_UPDATES, 2 * MEASURE_EVERY_UPDATES]
