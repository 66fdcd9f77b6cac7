from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import native

native.require()

from elasticdl.model.embeddings.attach import IdOrigin, TorchIdLookahead, locate_ids  # noqa: E402
from elasticdl.model.embeddings.layers import Embedding  # noqa: E402

TABLE = torch.arange(12).reshape(4, 3)
FEATURES = {"user": torch.tensor([1, 2, 3, 4]), "many": (TABLE, torch.zeros(4, 2))}


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (FEATURES["user"], IdOrigin(("user",))),
        (TABLE, IdOrigin(("many", 0))),
        (TABLE.reshape(-1), IdOrigin(("many", 0))),
        (TABLE[:, 2], IdOrigin(("many", 0), 2)),
        (TABLE[:, 1:3], IdOrigin(("many", 0), slice(1, 3))),
        (TABLE[:, :1], IdOrigin(("many", 0), slice(0, 1))),
        (TABLE[2], None),
        (TABLE.T, None),
        (TABLE + 0, None),
        (TABLE.int(), None),
        (torch.tensor([1, 2, 3, 4]), None),
    ],
)
def test_ids_are_located_in_the_features(ids: Tensor, expected: IdOrigin | None) -> None:
    origin = locate_ids(ids, FEATURES)

    assert origin == expected
    if origin is not None:
        ids_read = origin.read_ids(FEATURES)
        assert ids_read is not None and ids_read.tolist() == ids.reshape(-1).tolist()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user = Embedding(2, name="user")
        self.item = Embedding(2, name="item")

    def forward(self, features: Any) -> Tensor:
        ids = features["ids"]
        return self.user(ids[:, 0]) + self.item(ids[:, 1]) + self.item(ids[:, 2]) + self.user(ids[:, 0] // 2)


def test_ids_of_the_next_batch_are_predicted_from_the_current_one() -> None:
    model = Model()
    foresight = TorchIdLookahead([model.user, model.item])
    features = [{"ids": torch.arange(6).reshape(2, 3) + start} for start in (0, 10, 20)]
    assert foresight.predict_ids(features[0]) == {}

    for batch in features[:2]:
        foresight.begin_batch(batch)
        model(batch)

    predicted = {
        table: [ids.tolist() for ids in arrays] for table, arrays in foresight.predict_ids(features[2]).items()
    }
    assert predicted == {"user": [[20, 23]], "item": [[21, 24], [22, 25]]}


def test_features_of_a_different_shape_predict_nothing() -> None:
    model = Model()
    foresight = TorchIdLookahead([model.user, model.item])
    first = {"ids": torch.zeros(2, 3, dtype=torch.int64)}
    foresight.begin_batch(first)
    model(first)

    assert foresight.predict_ids({"other": torch.zeros(2)}) == {}
