"""Checkpoints: exact round trips, damage that is always seen, failures that leave nothing behind."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from elasticdl.checkpoint import captured_state, manifest, safetensors_file, staging, store, tensors, values
from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.errors import CheckpointCorrupt, CheckpointFailed, ModelError, SpecError
from tests.properties import examples


def small_state(step: int = 3) -> CapturedState:
    content = {"model/weight": torch.arange(6.0).reshape(2, 3) + step, "optimizer/0/step": torch.tensor(float(step))}
    return CapturedState(step, step * 10, content, {"param_groups": [], "scalars": {}})


def assert_same(left: CapturedState, right: CapturedState) -> None:
    assert (left.step, left.records, left.meta) == (right.step, right.records, right.meta)
    assert left.tensors.keys() == right.tensors.keys()
    for name, tensor in left.tensors.items():
        expected = right.tensors[name]
        assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape), name
        assert tensor.reshape(-1).view(torch.uint8).equal(expected.reshape(-1).view(torch.uint8)), name


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    path = store.write_checkpoint(tmp_path, small_state(120), {"seed": 7, "plan": {"epochs": 2}}, keep=3)

    captured, extra = store.read_checkpoint(path)

    assert path.name == "checkpoint-000000120"
    assert_same(captured, small_state(120))
    assert extra == {"seed": 7, "plan": {"epochs": 2}}


def test_the_model_file_is_readable_without_us(tmp_path: Path) -> None:
    path = store.write_checkpoint(tmp_path, small_state(), {}, keep=3)

    assert load_file(str(path / "model.safetensors"))["weight"].equal(small_state().tensors["model/weight"])


@pytest.mark.parametrize("dtype", list(tensors.DTYPES), ids=str)
def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    bits = torch.randint(0, 2 if dtype is torch.bool else 256, (24, dtype.itemsize), dtype=torch.uint8)
    content = {
        "model/many": bits.view(dtype).reshape(4, 6),
        "model/scalar": bits[0].view(dtype).reshape(()),
        "model/none": torch.empty((0, 3), dtype=dtype),
        "model/odd": torch.tensor([True, False, True]),
    }
    before = CapturedState(1, 1, content, {})

    after, _ = store.read_checkpoint(store.write_checkpoint(tmp_path, before, {}, keep=1))

    assert_same(before, after)


def test_the_newest_few_and_the_best_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40, 50):
        store.write_checkpoint(tmp_path, small_state(step), {}, keep=2, best_step=20)

    assert [manifest.parse_step(path) for path in manifest.list_checkpoints(tmp_path)] == [50, 40, 20]


def test_a_disk_that_does_not_give_back_what_was_written_costs_no_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_checkpoint(tmp_path, small_state(10), {}, keep=1)
    os_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, chunk: os_write(fd, bytes(octet ^ 1 for octet in chunk)))

    with pytest.raises(CheckpointFailed, match=r"cannot be read back: .* corrupt.*; check the disk"):
        store.write_checkpoint(tmp_path, small_state(20), {}, keep=1)

    monkeypatch.undo()
    assert [manifest.parse_step(path) for path in manifest.list_checkpoints(tmp_path)] == [10]
    assert_same(store.read_checkpoint(tmp_path / "checkpoint-000000010")[0], small_state(10))


def test_a_checkpoint_just_written_is_never_pruned_for_one_of_another_run(tmp_path: Path) -> None:
    for step in (500, 600, 10):
        store.write_checkpoint(tmp_path, small_state(step), {}, keep=1)

    assert [manifest.parse_step(path) for path in manifest.list_checkpoints(tmp_path)] == [600, 10]


def test_the_same_step_written_again_replaces_the_first(tmp_path: Path) -> None:
    store.write_checkpoint(tmp_path, small_state(3), {"seed": 1}, keep=3)
    store.write_checkpoint(tmp_path, small_state(3), {"seed": 2}, keep=3)

    newest = store.read_newest(tmp_path)

    assert newest is not None and newest[1] == {"seed": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000003"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_replaced_checkpoint_is_there_whenever_something_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    target = store.write_checkpoint(tmp_path, small_state(3), {"seed": 1}, keep=1)
    seeds: list[int] = []
    remove = shutil.rmtree

    def watched(path: Path, **options: Any) -> None:
        seeds.append(store.read_checkpoint(target)[1]["seed"])
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", watched)
    if not can_exchange:
        monkeypatch.setattr(staging, "exchange_names", lambda left, right: False)

    store.write_checkpoint(tmp_path, small_state(3), {"seed": 2}, keep=1)

    assert seeds and set(seeds) == {2}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000003"]


def test_two_directories_change_places_at_once(tmp_path: Path) -> None:
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()

    if not staging.exchange_names(tmp_path / "left", tmp_path / "right"):
        pytest.skip("this file system cannot exchange names")

    assert (tmp_path / "left" / "right").exists() and (tmp_path / "right" / "left").exists()


@settings(max_examples=examples(60))
@given(data=st.data())
def test_any_flipped_bit_or_missing_end_is_seen(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = store.write_checkpoint(tmp_path_factory.mktemp("damage"), small_state(), {"seed": 7}, keep=3)
    victim = path / data.draw(st.sampled_from(sorted(file.name for file in path.iterdir())))
    content = bytearray(victim.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[position] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[position:]
    victim.write_bytes(bytes(content))

    with pytest.raises(CheckpointCorrupt, match=str(victim)):
        store.read_checkpoint(path)


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "optimizer.safetensors"])
def test_a_missing_file_is_seen_and_the_checkpoint_before_is_used(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.write_checkpoint(tmp_path, small_state(10), {}, keep=3)
    (store.write_checkpoint(tmp_path, small_state(20), {}, keep=3) / name).unlink()

    with caplog.at_level(logging.WARNING):
        newest = store.read_newest(tmp_path)

    assert newest is not None and newest[0].step == 10
    assert name in caplog.text and "using the checkpoint before it" in caplog.text


def test_a_directory_without_checkpoints_has_no_newest(tmp_path: Path) -> None:
    assert store.read_newest(tmp_path) is None
    assert store.read_newest(tmp_path / "absent") is None


def test_checkpoints_of_which_none_is_usable_are_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    (store.write_checkpoint(tmp_path, small_state(), {}, keep=3) / "manifest.json").unlink()

    with pytest.raises(CheckpointCorrupt, match="none of the 1 checkpoints"):
        store.read_newest(tmp_path)


def test_find_takes_one_checkpoint_or_a_directory_of_them(tmp_path: Path) -> None:
    first = store.write_checkpoint(tmp_path, small_state(1), {}, keep=3)
    store.write_checkpoint(tmp_path, small_state(2), {}, keep=3)

    assert store.find_checkpoint(first)[0].step == 1
    assert store.find_checkpoint(tmp_path)[0].step == 2
    with pytest.raises(SpecError, match="no checkpoint at"):
        store.find_checkpoint(tmp_path / "absent")


def test_a_full_disk_leaves_nothing_behind_and_the_older_checkpoint_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_checkpoint(tmp_path, small_state(1), {}, keep=1)
    monkeypatch.setattr(os, "write", _raise(OSError(errno.ENOSPC, "No space left on device")))

    with pytest.raises(CheckpointFailed, match=r"checkpoint-000000002: No space left on device .*MB free"):
        store.write_checkpoint(tmp_path, small_state(2), {}, keep=1)

    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000001"]
    assert store.find_checkpoint(tmp_path)[0].step == 1


def test_a_directory_that_cannot_be_made_is_a_clear_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(CheckpointFailed, match=r"cannot write .*name another directory"):
        store.write_checkpoint(tmp_path / "file" / "checkpoints", small_state(), {}, keep=1)


def test_what_a_dead_writer_left_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    dead = tmp_path / ".staging-checkpoint-000000001-dead"
    dead.mkdir()
    (dead / "model.safetensors").write_text("half")
    with staging.staged_directory(tmp_path / "checkpoint-000000009") as living:
        store.write_checkpoint(tmp_path, small_state(2), {}, keep=1)

        assert living.exists() and not dead.exists()


def _raise(error: OSError) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


class Tied(nn.Module):
    """Shared weights, integer and bfloat16 buffers, and state of its own."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4, dtype=dtype)
        self.norm = nn.BatchNorm1d(4, dtype=dtype)
        self.head = nn.Linear(4, 5, bias=False, dtype=dtype)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(0.1, dtype=torch.bfloat16))
        self.calls = 0

    def get_extra_state(self) -> dict[str, Any]:
        return {"calls": self.calls, "trace": (1.5, [None, "x"], torch.tensor([self.calls]))}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]
        assert state["trace"][:2] == (1.5, [None, "x"]) and state["trace"][2].item() == self.calls

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        out: torch.Tensor = self.head(self.norm(self.embedding(ids)) * self.scale)
        return out


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, amsgrad=True),
    "adam with tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.003), foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, betas=(0.8, 0.95)),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adamax": lambda p: torch.optim.Adamax(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "radam": lambda p: torch.optim.RAdam(p),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "rprop": lambda p: torch.optim.Rprop(p),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


def train(model: Tied, optimizer: torch.optim.Optimizer, steps: int) -> None:
    def closure() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.tensor([0, 1, 2, 3])), torch.tensor([1, 2, 3, 4]))
        loss.backward()
        return float(loss.detach())

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_from_a_checkpoint_with_the_same_bits(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = Tied(dtype)
    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer, 3)
    saved = captured_state.capture_state(model, optimizer, 3, 12)
    store.write_checkpoint(tmp_path, saved, {}, keep=1)
    train(model, optimizer, 3)

    loaded, _, _ = store.find_checkpoint(tmp_path)
    restored = Tied(dtype)
    restored_optimizer = OPTIMIZERS[name](restored.parameters())
    captured_state.restore_state(loaded, restored, restored_optimizer)
    assert_same(saved, captured_state.capture_state(restored, restored_optimizer, 3, 12))
    train(restored, restored_optimizer, 3)

    assert_same(
        captured_state.capture_state(model, optimizer, 6, 24),
        captured_state.capture_state(restored, restored_optimizer, 6, 24),
    )
    assert_same(saved, loaded)  # training did not write into the state it began from
    assert restored.head.weight is restored.embedding.weight


def test_weights_alone_are_not_enough_to_go_on_training() -> None:
    model = nn.Linear(1, 1)
    weights = captured_state.capture_state(model, None, 4, 8)

    with pytest.raises(ModelError, match="has only weights"):
        captured_state.restore_state(weights, model, torch.optim.SGD(model.parameters()))


def test_the_optimizer_of_another_model_does_not_fit() -> None:
    saved_model, other_model = nn.Linear(1, 1), nn.Linear(1, 1)
    saved = captured_state.capture_state(saved_model, torch.optim.SGD(saved_model.parameters()), 4, 8)

    with pytest.raises(ModelError, match="the optimizer of step 4 does not fit"):
        captured_state.restore_state(saved, other_model, torch.optim.SGD([other_model.weight]))


def test_a_state_that_no_checkpoint_can_hold_is_named() -> None:
    with pytest.raises(CheckpointFailed, match="slot: cannot store a set in a checkpoint"):
        values.pack_value({1, 2}, "slot", {})
    with pytest.raises(CheckpointFailed, match="model/x: safetensors cannot store"):
        tensors.write_torch_tensors(Path("/dev/null"), {"model/x": torch.zeros(1, dtype=torch.float8_e4m3fnuz)})


def test_complex_numbers_of_both_precisions_come_back(tmp_path: Path) -> None:
    """The format has no complex128: it is there as pairs of real numbers, for whoever reads it without us."""
    written = {f"model/{dtype}": torch.randn(3, 2, dtype=dtype) for dtype in (torch.complex64, torch.complex128)}

    path = store.write_checkpoint(tmp_path, CapturedState(1, 2, written, {}), {}, keep=1)

    loaded = store.read_checkpoint(path)[0].tensors
    assert all(
        torch.equal(loaded[name], tensor) and loaded[name].dtype == tensor.dtype for name, tensor in written.items()
    )
    pairs = load_file(str(path / "model.safetensors"))["torch.complex128"]
    assert torch.equal(pairs, torch.view_as_real(written["model/torch.complex128"]))


def test_a_manifest_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "FORMAT", 2)
    path = store.write_checkpoint(tmp_path, small_state(), {}, keep=1)
    monkeypatch.undo()

    with pytest.raises(CheckpointCorrupt, match="another format than 1"):
        store.read_checkpoint(path)


def rows_beside(place: Path) -> dict[str, FileEntry]:
    (place / "ps").mkdir()
    return {"ps/ps-0-1.safetensors": safetensors_file.write_bytes(place / "ps" / "ps-0-1.safetensors", b"rows")}


def test_what_ps_wrote_beside_belongs_to_the_checkpoint(tmp_path: Path) -> None:
    path = store.write_checkpoint(tmp_path, small_state(), {}, keep=3, extra_files=rows_beside)

    assert_same(store.read_checkpoint(path)[0], small_state())
    (path / "ps" / "ps-0-1.safetensors").write_bytes(b"sowr")
    with pytest.raises(CheckpointCorrupt, match=r"ps-0-1\.safetensors is corrupt"):
        store.read_checkpoint(path)


def test_rows_that_cannot_be_written_leave_no_checkpoint(tmp_path: Path) -> None:
    first = store.write_checkpoint(tmp_path, small_state(1), {}, keep=3)

    def fails(place: Path) -> dict[str, FileEntry]:
        raise CheckpointFailed("ps-1: cannot write")

    with pytest.raises(CheckpointFailed, match="ps-1"):
        store.write_checkpoint(tmp_path, small_state(2), {}, keep=3, extra_files=fails)
    assert list(tmp_path.iterdir()) == [first]


def test_files_of_the_model_lie_in_the_checkpoint_and_are_verified(tmp_path: Path) -> None:
    path = store.write_checkpoint(tmp_path, small_state(1), {}, keep=3, files={"preprocessor.json": b"{}"})

    assert (path / "files" / "preprocessor.json").read_bytes() == b"{}"
    assert store.read_checkpoint(path)[0].step == 1
    (path / "files" / "preprocessor.json").write_bytes(b"[]")
    with pytest.raises(CheckpointCorrupt, match=r"preprocessor\.json"):
        store.read_checkpoint(path)
