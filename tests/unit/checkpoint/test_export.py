"""Exports: usable by others, atomic, and careful with what lies where they go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from elasticdl.checkpoint import captured_state, export_target, manifest, store
from elasticdl.checkpoint.export import export_model, find_weights
from elasticdl.errors import CheckpointCorrupt, SpecError


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if float(x.sum()) > 0 else x


def dropout_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.Dropout(), nn.BatchNorm1d(2))


def test_an_exported_program_runs_batches_of_any_size_as_the_model_does(tmp_path: Path) -> None:
    model = dropout_net()
    files = export_model(model, torch.ones(1, 3), tmp_path / "out", {"step": 12, "model_def": "m.forward"})

    program = torch.export.load(tmp_path / "out" / "model.pt2").module()

    assert [file.name for file in files] == ["model.safetensors", "model.pt2", "model.json"]
    assert model.training
    model.eval()
    for size in (1, 2, 7):
        features = torch.randn(size, 3)
        torch.testing.assert_close(program(features), model(features))


@pytest.mark.parametrize(
    "sample", [torch.ones(4, 4)[:, :-1], torch.ones(3, 4).T, torch.ones(2, 3)], ids=["sliced", "transposed", "plain"]
)
def test_the_layout_of_the_sample_does_not_bind_the_program(tmp_path: Path, sample: Tensor) -> None:
    model = nn.Sequential(nn.Linear(3, 2)).eval()
    export_model(model, sample, tmp_path / "out", {})

    program = torch.export.load(tmp_path / "out" / "model.pt2").module()

    for features in (torch.rand(5, 3), torch.rand(5, 4)[:, :-1], torch.rand(3, 5).T):
        torch.testing.assert_close(program(features), model(features))


def test_a_model_that_cannot_be_traced_is_exported_with_the_reason(tmp_path: Path) -> None:
    files = export_model(Untraceable(), torch.ones(2, 2), tmp_path / "out", {"step": 1})

    assert [file.name for file in files] == ["model.safetensors", "model.json"]
    extra = manifest.read_manifest(tmp_path / "out" / "model.json").extra
    assert extra["program"] is None and "torch.export refused" in extra["why_no_program"]


def test_weights_come_back_from_an_export_and_from_a_checkpoint(tmp_path: Path) -> None:
    model = dropout_net()
    export_model(model, None, tmp_path / "out", {"step": 12, "records": 340})
    store.write_checkpoint(tmp_path / "checkpoints", captured_state.capture_state(model, None, 12, 340), {}, keep=1)

    for path in (tmp_path / "out", tmp_path / "checkpoints", tmp_path / "checkpoints" / "checkpoint-000000012"):
        restored = dropout_net()
        nn.init.zeros_(restored.get_parameter("0.weight"))
        weights = find_weights(path)[0]
        captured_state.restore_state(weights, restored, None)

        assert (weights.step, weights.records) == (12, 340)
        assert all(restored.state_dict()[name].equal(tensor) for name, tensor in model.state_dict().items())


def test_weights_that_are_nowhere_are_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no checkpoint at .*or an export"):
        find_weights(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_damaged_export_is_seen(tmp_path: Path, name: str) -> None:
    export_model(dropout_net(), None, tmp_path / "out", {})
    content = bytearray((tmp_path / "out" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "out" / name).write_bytes(content)

    with pytest.raises(CheckpointCorrupt, match=name):
        find_weights(tmp_path / "out")


def test_an_earlier_export_is_replaced_whole(tmp_path: Path) -> None:
    export_model(dropout_net(), torch.ones(2, 3), tmp_path / "out", {"step": 1})
    export_model(nn.Linear(1, 1), None, tmp_path / "out", {"step": 2})

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model.json", "model.safetensors"]
    assert find_weights(tmp_path / "out")[0].step == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    assert export_model(nn.Linear(1, 1), None, tmp_path / "out", {})


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    with pytest.raises(SpecError, match="holds other files and is not replaced"):
        export_model(nn.Linear(1, 1), None, tmp_path, {})

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_export_someone_added_to_is_left_alone(tmp_path: Path) -> None:
    export_model(nn.Linear(1, 1), None, tmp_path / "out", {})
    (tmp_path / "out" / "notes.txt").write_text("mine")

    with pytest.raises(SpecError, match="holds other files"):
        export_target.check_export_target(tmp_path / "out")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").touch()

    with pytest.raises(SpecError, match="found a file"):
        export_target.check_export_target(tmp_path / "out")
    with pytest.raises(SpecError, match="is a file"):
        export_target.check_export_target(tmp_path / "out" / "below" / "it")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere

    with pytest.raises(SpecError, match="is not writable"):
        export_target.check_export_target(tmp_path / "below" / "out")


def test_the_weights_of_another_model_do_not_fit(tmp_path: Path) -> None:
    from elasticdl.errors import ModelError

    export_model(nn.Linear(1, 1), None, tmp_path / "out", {"step": 5})

    with pytest.raises(ModelError, match="the weights of step 5 do not fit the model"):
        captured_state.restore_state(find_weights(tmp_path / "out")[0], dropout_net(), None)
