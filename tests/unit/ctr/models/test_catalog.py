"""Every CTR model takes a preprocessor's output and gives a score for each row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from elasticdl.ctr.models.catalog import MODELS_BY_NAME, build_model
from elasticdl.errors import ModelError
from elasticdl.features.layout import FIELD_BITS, PADDING_ID, FeatureLayout, IdField
from elasticdl.torch import join

ROWS, FIELDS, NUMBERS = 6, 4, 3
FLAT = FeatureLayout(
    fields=tuple(IdField(name=f"f{n}", size=10) for n in range(FIELDS)), numbers=tuple(f"n{n}" for n in range(NUMBERS))
)
BEFORE = FLAT.model_copy(update={"sequences": {"seen": "f1", "words": ""}})
IN_TORCH = [name for name, model in MODELS_BY_NAME.items() if not model.is_keras]


def features(layout: FeatureLayout, rows: int = ROWS) -> dict[str, Tensor]:
    fields = torch.arange(FIELDS) << FIELD_BITS
    models = {
        "ids": torch.randint(0, 10, (rows, FIELDS)) + fields,
        "numbers": torch.randn(rows, len(layout.numbers)),
    }
    for name in layout.sequences:
        models[name] = torch.randint(0, 10, (rows, 5)) + fields[1]
        models[name][:, 3:] = PADDING_ID
    return models


@pytest.mark.parametrize("layout", [FLAT, BEFORE, FLAT.model_copy(update={"numbers": ()})])
@pytest.mark.parametrize("name", IN_TORCH)
def test_a_model_gives_one_finite_score_a_row(name: str, layout: FeatureLayout) -> None:
    scores = build_model(name, layout)(features(layout))

    assert scores.shape == (ROWS,)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("name", IN_TORCH)
def test_a_model_learns_which_value_is_clicked(name: str) -> None:
    torch.manual_seed(0)
    inputs = features(FLAT, 256)
    labels = (inputs["ids"][:, 2] & 1).float()
    rows = [({key: value[n] for key, value in inputs.items()}, labels[n]) for n in range(256)]
    model = build_model(name, FLAT)
    job = join(model, torch.optim.Adam(model.parameters(), lr=0.02), rows, global_batch_size=64, epochs=12)
    losses = []

    for step in job:
        for batch, clicks in step:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batch), clicks)
            losses.append(float(loss.detach()))
            step.backward(loss)

    assert sum(losses[-4:]) / 4 < 0.45


@pytest.mark.parametrize("name", IN_TORCH)
def test_padding_of_sequences_changes_no_score(name: str) -> None:
    model = build_model(name, BEFORE).eval()
    short = features(BEFORE)
    long = {**short, "seen": torch.cat([short["seen"], torch.full((ROWS, 2), PADDING_ID)], dim=1)}

    torch.testing.assert_close(model(short), model(long))


def test_an_unknown_model_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(ModelError, match=r"no 'deepmf'; .*did you mean deepfm"):
        build_model("deepmf", FLAT)


def test_an_unknown_parameter_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(
        ModelError, match=r"deepfm: no parameter 'hiden_units'; it takes embedding_dim, .*did you mean hidden_units"
    ):
        build_model("deepfm", FLAT, hiden_units=(3,))


def test_defaults_can_be_shown() -> None:
    assert MODELS_BY_NAME["deepfm"].params["embedding_dim"] == 10
    assert MODELS_BY_NAME["lr"].params == {}
