"""torch.compile with `join`: what is warmed up before a worker joins is not compiled again in the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch import nn

from elasticdl.torch import checks
from tests.unit.torch.loops import RECORDS, cross_entropy, digits, is_same, join, small_model


@pytest.fixture(autouse=True)
def no_compiled_code() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def batch_sizes(**keywords: Any) -> tuple[set[int], set[int]]:
    """The sizes of batches that `warm_up` sees, and those of the loop."""
    warm: set[int] = set()
    trained: set[int] = set()
    model = small_model()

    def warm_up(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        warm.add(len(features))
        return cross_entropy(model, features, labels)

    for step in join(model, sgd(model), warm_up=warm_up, **keywords):
        for features, labels in step:
            trained.add(len(features))
            step.backward(cross_entropy(model, features, labels))
    return warm, trained


@pytest.mark.parametrize("logical_ranks", [1, 3, 5, 8])
@pytest.mark.parametrize("records", [RECORDS, RECORDS - 3])
def test_a_warm_up_runs_every_size_that_a_batch_may_have(logical_ranks: int, records: int) -> None:
    dataset = torch.utils.data.Subset(digits(), range(records))

    warm, trained = batch_sizes(logical_ranks=logical_ranks, dataset=dataset)

    assert warm == trained


def test_nothing_is_compiled_after_the_warm_up() -> None:
    model = small_model()
    compiled = torch.compile(model, backend="aot_eager")

    job = join(
        compiled, sgd(model), logical_ranks=3,
        warm_up=lambda features, labels: cross_entropy(compiled, features, labels),
    )  # fmt: skip
    with torch.compiler.set_stance("fail_on_recompile"):
        for step in job:
            for features, labels in step:
                step.backward(cross_entropy(compiled, features, labels))

    assert job.step == job.plan.total_steps


def test_a_model_compiled_in_the_loop_trains_like_an_eager_one() -> None:
    plain, model = small_model(), small_model()
    compiled = torch.compile(model, backend="aot_eager")

    for trained, forward in ((plain, plain), (model, compiled)):
        for step in join(forward, sgd(trained), logical_ranks=3):
            for features, labels in step:
                step.backward(cross_entropy(forward, features, labels))

    assert is_same(model, plain)


def test_a_warm_up_leaves_no_trace() -> None:
    def train(is_warm: bool) -> tuple[nn.Module, float]:
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 2))
        warm_up = (lambda features, labels: cross_entropy(model, features, labels)) if is_warm else None
        job = join(model, sgd(model), warm_up=warm_up)
        drawn = torch.rand(()).item()  # by the script, between join and the loop
        for step in job:
            for features, labels in step:
                step.backward(cross_entropy(model, features, labels))
        return model, drawn

    (warm, drawn), (cold, expected) = train(is_warm=True), train(is_warm=False)

    assert drawn == expected
    assert is_same(warm, cold)


def in_place() -> nn.Module:
    model = small_model()
    model.compile(backend="eager")
    return model


def in_part() -> nn.Module:
    model = small_model()
    model[0] = torch.compile(model[0], backend="eager")  # type: ignore[assignment]
    return model


def test_a_compiled_model_without_warm_up_warns_with_the_fix() -> None:
    for model in (torch.compile(small_model(), backend="eager"), in_place(), in_part()):
        with pytest.warns(UserWarning, match="warm_up=lambda features, labels: loss"):
            checks.warn_of_cold_compile([cast(nn.Module, model)])


def test_a_plain_model_does_not_warn() -> None:
    checks.warn_of_cold_compile([small_model()])
