"""Python values as JSON and tensors, and back."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from elasticdl.checkpoint import values
from elasticdl.errors import CheckpointFailed


def round_trip(value: Any) -> Any:
    """`value` through JSON, as a checkpoint or a newcomer sees it."""
    tensors: dict[str, torch.Tensor] = {}
    packed = json.loads(json.dumps(values.pack_value(value, "it", tensors)))
    return values.unpack_value(packed, tensors)


@pytest.mark.parametrize(
    "value",
    [
        Counter({30: 1, 60: 2}),
        {1: "a", "1": "b", None: [1, (2, 3)]},
        {"best": float("inf"), "mode": "min"},
        (),
        [{"nested": {"tuple": (1.5, True)}}],
    ],
)
def test_values_come_back_as_they_were(value: Any) -> None:
    back = round_trip(value)

    assert back == value and type(back) is type(value)


def test_numbers_of_numpy_come_back_as_plain_ones() -> None:
    back = round_trip({"rate": np.float32(0.5), "count": np.int64(3)})

    assert back == {"rate": 0.5, "count": 3} and type(back["count"]) is int


def test_tensors_whose_names_would_clash_come_back_each() -> None:
    back = round_trip({1: torch.ones(1), "1": torch.zeros(1), "a/b": torch.full((1,), 2.0), "a": {"b": torch.ones(2)}})

    assert [back[1].item(), back["1"].item(), back["a/b"].item()] == [1.0, 0.0, 2.0]
    assert back["a"]["b"].tolist() == [1.0, 1.0]


def test_what_cannot_be_kept_is_named_with_its_place() -> None:
    with pytest.raises(CheckpointFailed, match="it/deep/0: cannot store a object"):
        round_trip({"deep": [object()]})
