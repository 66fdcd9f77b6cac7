"""Models that torch.compile has wrapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest
import torch
from torch import nn

from elasticdl.errors import SpecError
from elasticdl.model.compiled import check_compiles_parts, is_compiled, make_eager, unwrap_compiled


@pytest.fixture(autouse=True)
def no_compiled_code() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def plain() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def whole() -> nn.Module:
    return cast(nn.Module, torch.compile(plain(), backend="eager"))


def in_place() -> nn.Module:
    model = plain()
    model.compile(backend="eager")
    return model


def in_part() -> nn.Module:
    model = plain()
    assert isinstance(model, nn.Sequential)
    model[0] = torch.compile(model[0], backend="eager")  # type: ignore[assignment]
    return model


@pytest.mark.parametrize("make", [whole, in_place, in_part])
def test_an_eager_copy_compiles_nothing_and_computes_the_same(make: Callable[[], nn.Module]) -> None:
    model = make()
    assert is_compiled(model) and not is_compiled(plain())

    eager = make_eager(model)

    with torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(eager(torch.ones(5, 3)), plain()(torch.ones(5, 3)))
    assert all(
        eager_parameter is parameter
        for eager_parameter, parameter in zip(eager.parameters(), model.parameters(), strict=True)
    )


def test_the_uncompiled_model_has_names_without_a_prefix() -> None:
    assert list(unwrap_compiled(whole()).state_dict()) == list(plain().state_dict())
    model = plain()
    assert unwrap_compiled(model) is model


def test_a_model_with_rows_on_ps_compiles_in_parts_only() -> None:
    for model in (plain(), in_part()):
        check_compiles_parts(model)
    for model in (whole(), in_place()):
        with pytest.raises(SpecError, match="compile the parts without embeddings"):
            check_compiles_parts(model)
