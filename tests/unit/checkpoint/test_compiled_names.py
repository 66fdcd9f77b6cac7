"""Names in a captured state are those of the model without torch.compile's prefix."""

from __future__ import annotations

import torch
from torch import nn

from elasticdl.checkpoint.captured_state import capture_state, restore_state


def half_compiled() -> nn.Module:
    """A part of it is what torch.compile makes of a module."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model[0] = torch.compile(model[0], backend="eager")  # type: ignore[assignment]
    return model


def test_a_compiled_part_has_the_names_it_had_before() -> None:
    captured = capture_state(half_compiled(), None, 0, 0)

    assert set(captured.weights()) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_weights_go_from_a_compiled_model_to_a_plain_one_and_back() -> None:
    compiled, plain = half_compiled(), nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))

    restore_state(capture_state(compiled, None, 0, 0), plain, None)
    again = half_compiled()
    restore_state(capture_state(plain, None, 0, 0), again, None)

    pairs = zip(compiled.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)
