"""The batches of a model file: precision, micro-batches, and the scaler as a part of the training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.readers.mapped import MappedSource
from elasticdl.errors import SpecError
from elasticdl.model import tensors
from elasticdl.model.callbacks import Callback
from elasticdl.spec import PlanSpec
from elasticdl.spec.plan import ComputePrecision
from elasticdl.worker.local import LocalTraining
from elasticdl.worker.train import ModelLoop
from elasticdl.worker.training.loop import TrainingSetup
from elasticdl.worker.training.warm_up import warm_up_model

CPU = torch.device("cpu")
RECORDS, BATCH, RANKS = 22, 8, 2


class Net(nn.Module):
    """Remembers the sizes of its batches and the dtypes of its computation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 2)
        self.sizes: list[int] = []
        self.types: set[torch.dtype] = set()

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        hidden = self.first(features["x"])
        self.sizes.append(len(hidden))
        self.types.add(hidden.dtype)
        scores: Tensor = self.second(torch.relu(hidden))
        return scores


class Plain(Net):
    """Without memory, which torch.compile would look at."""

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        scores: Tensor = self.second(torch.tanh(self.first(features["x"])))
        return scores


class Losses:
    """The part of the contract that the loop needs. Labels are a pair, of which the second scales the loss."""

    def batch_loss(self, model: nn.Module, features: Any, labels: Any) -> Tensor:
        classes, scale = labels
        return (nn.functional.cross_entropy(model(features), classes, reduction="none") * scale).mean()


class Watch(Callback):
    """Remembers the norm of the gradients it is shown."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_gradients(self, model: nn.Module, step: int) -> None:
        self.norms.append(float(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))


def dataset(scale: float = 1.0) -> Dataset:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(RECORDS, 3, generator=generator)
    items = [({"x": row}, (int(row.sum() > 0), scale)) for row in features]
    return Dataset(MappedSource(items, "made up"), stack=tensors.stack_values)


class Run:
    """A training in one process."""

    def __init__(self, data: Dataset | None = None, ranks: int = RANKS, *, compiles: bool = False, **plan: Any) -> None:
        self.model, self.watch = Plain() if compiles else Net(), Watch()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.data = data or dataset()
        self.plan = TrainingPlan(RECORDS, BATCH, ranks, epochs=2)
        model = torch.compile(self.model, backend="aot_eager") if compiles else self.model
        self.loop = ModelLoop(Losses(), model, PlanSpec(**plan), CPU)  # type: ignore[arg-type]
        self.loop.check_optimizer(self.optimizer)
        setup = TrainingSetup(
            self.model, [self.optimizer], CPU, callbacks=[self.watch], user_state=self.loop.user_state
        )
        self.alone = LocalTraining.open(setup, self.data, self.plan)

    def steps(self) -> Iterator[float]:
        for step in self.alone.steps():
            self.loop.compute_step(step)
            self.loop.apply_update(self.optimizer, is_explicit=self.alone.training.is_explicit)
            yield step.loss

    def all(self) -> list[float]:
        return list(self.steps())

    @property
    def scale(self) -> float:
        assert self.loop.user_state is not None
        return float(self.loop.user_state.scalers[0].get_scale())

    def weights(self) -> Tensor:
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_loss_is_computed_in_the_precision_and_everything_else_in_float32(
    precision: str, dtype: torch.dtype
) -> None:
    plain, mixed = Run(), Run(precision=precision)

    expected, losses = plain.all(), mixed.all()

    assert plain.model.types == {torch.float32} and mixed.model.types == {dtype}
    assert mixed.weights().dtype == torch.float32
    assert losses != expected and losses == pytest.approx(expected, rel=0.02)
    torch.testing.assert_close(mixed.weights(), plain.weights(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_loss_in_half_precision_is_reported_in_float32(precision: str) -> None:
    class Short:
        def batch_loss(self, model: nn.Module, features: Any, labels: Any) -> Tensor:
            result: Tensor = model(features).mean()
            return result

    loop = ModelLoop(Short(), Net(), PlanSpec(precision=precision), CPU)  # type: ignore[arg-type]

    (result,) = loop.micro_batches({"x": torch.ones(4, 3)}, None)

    assert result.loss.dtype == torch.float32


def test_micro_batches_make_the_update_of_the_whole_batch() -> None:
    whole_batches, micro_batches = Run(), Run(micro_batch_size=3)

    losses = whole_batches.all()

    assert micro_batches.all() == pytest.approx(losses)
    assert whole_batches.model.sizes[:4] == [4, 4, 4, 4] and micro_batches.model.sizes[:4] == [3, 1, 3, 1]
    assert set(micro_batches.model.sizes) == {3, 1}
    torch.testing.assert_close(micro_batches.weights(), whole_batches.weights())


def test_micro_batches_that_hold_a_whole_slice_change_no_bit() -> None:
    whole_batches, micro_batches = Run(), Run(micro_batch_size=4)

    assert micro_batches.all() == whole_batches.all()
    assert torch.equal(micro_batches.weights(), whole_batches.weights())


def test_callbacks_see_gradients_that_are_not_scaled() -> None:
    plain, scaled = Run(), Run(precision="fp16")

    plain.all(), scaled.all()

    assert scaled.scale > 1000
    assert scaled.watch.norms == pytest.approx(plain.watch.norms, rel=0.05)


def test_an_update_that_the_scaler_skips_counts_as_a_step() -> None:
    run = Run(dataset(scale=64.0), precision="fp16")
    first = run.weights()
    steps = run.steps()

    next(steps)  # the scale is too large for such losses at first

    assert run.watch.norms == [] and torch.equal(run.weights(), first)
    list(steps)
    assert run.alone.training.step == run.plan.total_steps
    assert run.scale < 65536.0 and run.watch.norms
    assert not torch.equal(run.weights(), first)


def test_the_scale_is_part_of_the_training_state() -> None:
    run = Run(dataset(scale=64.0), precision="fp16")
    run.all()
    restored = Run(precision="fp16")

    restored.alone.training.load(run.alone.training.capture())

    assert restored.scale == run.scale != 65536.0


def test_a_training_with_a_scaler_goes_on_without_one() -> None:
    run, later = Run(precision="fp16"), Run()
    run.all()
    assert run.alone.training.is_explicit
    steps = later.steps()
    next(steps)

    later.alone.training.load(run.alone.training.capture())
    before = later.weights()
    later.alone.training.step = 1
    next(steps)
    next(steps)

    assert not torch.equal(later.weights(), before)


def test_steps_without_any_record_are_skipped() -> None:
    emptied = dataset().filter(lambda item: False)

    run = Run(emptied, precision="fp16")

    assert run.all() == [0.0] * run.plan.total_steps


def test_a_fused_optimizer_is_refused_with_fp16() -> None:
    model = Net()
    fused = torch.optim.AdamW(model.parameters(), fused=True)
    loop = partial(ModelLoop, Losses(), model, device=CPU)  # type: ignore[arg-type]

    loop(PlanSpec(precision=ComputePrecision("bf16"))).check_optimizer(fused)
    with pytest.raises(SpecError, match=r"plan.precision: fp16: a fused optimizer .* fused=False"):
        loop(PlanSpec(precision=ComputePrecision("fp16"))).check_optimizer(fused)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_warm_up_leaves_nothing_to_compile(precision: str) -> None:
    torch._dynamo.reset()
    run = Run(ranks=3, compiles=True, precision=precision, micro_batch_size=2)

    warm_up_model(
        run.model,
        run.plan,
        lambda step, rank: run.data.read_batch(run.plan.rank_slice(step, rank)),
        lambda batch: (micro.loss for micro in run.loop.micro_batches(batch.features, batch.labels)),
    )
    with torch.compiler.set_stance("fail_on_recompile"):
        losses = run.all()
    torch._dynamo.reset()

    assert len(losses) == run.plan.total_steps
