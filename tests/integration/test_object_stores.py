"""Checkpoints and exports in an object store are complete or ignored, retried, and deleted if they are partial."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from elasticdl.checkpoint import captured_state, export_target, manifest, staging, store
from elasticdl.checkpoint import export as exports
from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.errors import CheckpointCorrupt, CheckpointFailed, SpecError, StoreUnavailable
from elasticdl.model.callbacks import EarlyStopping
from elasticdl.storage import probe
from elasticdl.storage.paths import StorePath, parse_path
from elasticdl.worker.model_export import find_best_checkpoint
from tests.s3 import Proxy
from tests.waiting import until

WRITE = """
import sys
import torch
from elasticdl.checkpoint import captured_state, store
from elasticdl.storage.paths import parse_path

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW(model.parameters())
captured = captured_state.capture_state(model, optimizer, int(sys.argv[2]), 0)
store.write_checkpoint(parse_path(sys.argv[1]), captured, {}, 3)
"""


def make_state(step: int) -> CapturedState:
    torch.manual_seed(step)
    model = nn.Linear(3, 2)
    return captured_state.capture_state(model, torch.optim.AdamW(model.parameters()), step, 10 * step)


def write(directory: StorePath, step: int, keep: int = 3, best: int | None = None) -> StorePath:
    written = store.write_checkpoint(
        directory, make_state(step), {"seed": 7}, keep, best, files={"preprocessor.json": b"{}"}
    )
    assert isinstance(written, StorePath)
    return written


def weights(state: CapturedState) -> bytes:
    return b"".join(tensor.numpy().tobytes() for _, tensor in sorted(state.tensors.items()))


class FailAfter:
    """Passes requests until one is a PUT of `name`; then all fail with `status`."""

    def __init__(self, name: str, status: int) -> None:
        self._name, self._status = name, status
        self._is_failing = False

    def __call__(self, method: str, path: str) -> int:
        self._is_failing |= method == "PUT" and path.partition("?")[0].endswith(self._name)
        return self._status if self._is_failing else 0


class FailTimes:
    """Fails the first `times` requests whose path contains `part`."""

    def __init__(self, times: int, status: int = 503, part: str = "") -> None:
        self.left, self._status, self._part = times, status, part
        self._lock = threading.Lock()

    def __call__(self, method: str, path: str) -> int:
        with self._lock:
            if self._part not in path or self.left == 0:
                return 0
            self.left -= 1
            return self._status


def test_a_checkpoint_is_restored_as_it_was_written(bucket: StorePath) -> None:
    path = write(bucket, 120)

    newest = store.read_newest(bucket)

    assert newest is not None
    restored, extra, restored_from = newest
    assert (restored_from, extra, restored.step, restored.records) == (path, {"seed": 7}, 120, 1200)
    assert weights(restored) == weights(make_state(120))
    names = {"files/preprocessor.json", "manifest.json", "model.safetensors", "optimizer.safetensors"}
    assert set(path.list_files()) == names


def test_the_newest_and_the_best_checkpoints_are_kept_and_a_manifest_is_deleted_first(
    bucket: StorePath, s3: Proxy
) -> None:
    for step in (1, 2, 3):
        write(bucket, step, keep=2, best=1)
    s3.requests.clear()
    write(bucket, 4, keep=2, best=1)

    assert [checkpoint.name[-1] for checkpoint in manifest.list_checkpoints(bucket)] == ["4", "3", "1"]
    removed = [path for method, path in s3.requests if method == "DELETE" and "checkpoint-000000002" in path]
    assert removed[0].endswith("manifest.json") and len(removed) == 4
    assert not (bucket / "checkpoint-000000002").list_files()


def test_a_checkpoint_of_the_same_step_is_replaced(bucket: StorePath) -> None:
    write(bucket, 5)
    (bucket / "checkpoint-000000005" / "left").write_bytes(b"of another time")

    store.write_checkpoint(bucket, make_state(5), {"seed": 8}, 3)

    newest = store.read_newest(bucket)
    assert newest is not None and newest[1] == {"seed": 8}
    expected = {"manifest.json", "model.safetensors", "optimizer.safetensors"}
    assert set((bucket / "checkpoint-000000005").list_files()) == expected


def test_an_upload_whose_writer_was_killed_is_ignored_and_deleted_by_the_next_writer(
    bucket: StorePath, s3: Proxy
) -> None:
    write(bucket, 1)
    reached, may_go_on = threading.Event(), threading.Event()

    def hold(method: str, path: str) -> int:
        if method == "PUT" and "checkpoint-000000002/optimizer" in path:
            reached.set()
            may_go_on.wait(60)
            return 503
        return 0

    s3.rule = hold
    writer = subprocess.Popen([sys.executable, "-c", WRITE, str(bucket), "2"])
    try:
        assert reached.wait(60)
    finally:
        writer.kill()
        writer.wait()
        may_go_on.set()
    torn = bucket / "checkpoint-000000002"
    assert "model.safetensors" in torn.list_files() and "manifest.json" not in torn.list_files()

    newest = store.read_newest(bucket)
    assert newest is not None and newest[0].step == 1

    s3.rule = lambda method, path: 0
    write(bucket, 3)
    assert [checkpoint.name[-1] for checkpoint in manifest.list_checkpoints(bucket)] == ["3", "1"]
    assert not torn.list_files()


def test_the_best_step_is_only_exported_from_a_complete_checkpoint(bucket: StorePath) -> None:
    path, torn = write(bucket, 40), bucket / manifest.checkpoint_name(50)
    (torn / "model.safetensors").write_bytes(b"of a killed writer")
    best = EarlyStopping("logloss", mode="min", exports_best=True)

    best.best_step = 40
    assert find_best_checkpoint([best], bucket, 60) == path
    best.best_step = 50
    assert find_best_checkpoint([best], bucket, 60) is None


def test_requests_are_retried_while_a_store_replies_503(bucket: StorePath, s3: Proxy) -> None:
    s3.rule = rule = FailTimes(6)
    write(bucket, 1)
    assert rule.left == 0

    s3.rule = rule = FailTimes(4, 500)
    newest = store.read_newest(bucket)
    assert rule.left == 0 and newest is not None and weights(newest[0]) == weights(make_state(1))


def test_an_unavailable_store_only_fails_the_checkpoint_being_written(bucket: StorePath, s3: Proxy) -> None:
    write(bucket, 1)
    s3.rule = FailAfter("checkpoint-000000002/optimizer.safetensors", 503)
    impatient = parse_path(str(bucket), retry_s=0.5)

    with pytest.raises(StoreUnavailable, match=r"did not answer for 0\.5 s"):
        store.write_checkpoint(impatient, make_state(2), {}, 3)

    s3.rule = lambda method, path: 0
    assert [checkpoint.name[-1] for checkpoint in manifest.list_checkpoints(bucket)] == ["1"]


def test_a_request_that_a_store_refuses_is_not_retried(bucket: StorePath, s3: Proxy) -> None:
    s3.rule = FailAfter("model.safetensors", 403)

    with pytest.raises(SpecError, match=r"the store refuses it: .*AWS_ACCESS_KEY_ID"):
        write(bucket, 1)


def test_a_checkpoint_with_a_missing_or_changed_object_is_skipped(bucket: StorePath) -> None:
    for step in (1, 2, 3):
        write(bucket, step)
    (bucket / "checkpoint-000000003" / "optimizer.safetensors").unlink()
    (bucket / "checkpoint-000000002" / "model.safetensors").write_bytes(b"changed")

    newest = store.read_newest(bucket)

    assert newest is not None and newest[0].step == 1
    (bucket / "checkpoint-000000001" / "manifest.json").write_bytes(b"{}")
    with pytest.raises(CheckpointCorrupt, match="none of the 3 checkpoints"):
        store.read_newest(bucket)


def test_an_export_is_replaced_but_no_other_directory(bucket: StorePath) -> None:
    model = nn.Linear(3, 2)
    for step in (1, 2):
        exports.export_model(model, torch.zeros(2, 3), bucket / "model", {"step": step}, {"preprocessor.json": b"{}"})

    exported, local = exports.find_weights(bucket / "model")
    assert exported.step == 2
    assert torch.export.load(local / "model.pt2").module()(torch.ones(2, 3)).shape == (2, 2)
    (bucket / "model" / "notes.txt").write_bytes(b"mine")
    with pytest.raises(SpecError, match="holds other files and is not replaced"):
        export_target.check_export_target(bucket / "model")
    assert (bucket / "model" / "notes.txt").read_bytes() == b"mine"


def test_an_interrupted_export_is_no_model_and_can_be_written_again(bucket: StorePath, s3: Proxy) -> None:
    model = nn.Linear(3, 2)
    exports.export_model(model, None, bucket / "model", {"step": 1}, {"old.json": b"{}"})
    s3.rule = FailAfter("preprocessor.json", 503)
    impatient = parse_path(f"{bucket}/model", retry_s=0.3)
    with pytest.raises(CheckpointFailed, match="the export could not be written"):
        exports.export_model(model, None, impatient, {"step": 2}, {"preprocessor.json": b"{}"})
    s3.rule = lambda method, path: 0

    assert staging.UPLOADING_FILE in (bucket / "model").list_files()
    with pytest.raises(SpecError, match="no checkpoint at"):
        exports.find_weights(bucket / "model")
    exports.export_model(model, None, bucket / "model", {"step": 3}, {"preprocessor.json": b"{}"})
    assert exports.find_weights(bucket / "model")[0].step == 3
    assert set((bucket / "model").list_files()) == {"preprocessor.json", "model.json", "model.safetensors"}


def test_a_large_file_is_uploaded_in_parts(bucket: StorePath, s3: Proxy, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(1 << 20) * 120)
    s3.requests.clear()

    (bucket / "large").upload(path)

    assert sum("partNumber" in path for _, path in s3.requests) > 1
    (bucket / "large").download(tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_a_probe_writes_reads_and_deletes_and_leaves_nothing(bucket: StorePath, s3: Proxy) -> None:
    s3.requests.clear()

    probe.check_writable(bucket, "--output")

    assert {method for method, path in s3.requests if ".elasticdl-probe-" in path} >= {"PUT", "GET", "DELETE"}
    assert not bucket.list_files()


def test_a_read_only_location_is_refused(bucket: StorePath, s3: Proxy) -> None:
    s3.rule = lambda method, path: 403 if method == "PUT" else 0

    with pytest.raises(SpecError, match=r"--output: .*the store refuses it"):
        probe.check_writable(bucket, "--output")
    with pytest.raises(SpecError, match="there is nothing at"):
        probe.check_readable(bucket, "--checkpoint_dir_for_init")


def test_a_missing_bucket_is_reported_within_a_second(s3: Proxy) -> None:
    started = time.monotonic()

    with pytest.raises(SpecError, match=r"--output: there is no bucket 'no-such-bucket' .*AWS_ENDPOINT_URL"):
        probe.check_writable(StorePath("s3", "no-such-bucket/x", probe.PROBE_S), "--output")
    assert time.monotonic() - started < 1.0


def test_a_store_that_cannot_be_reached_is_refused_in_bounded_time(bucket: StorePath, s3: Proxy) -> None:
    s3.rule = lambda method, path: 503

    with pytest.raises(SpecError, match=r"--output: .*did not answer for 0\.5 s"):
        probe.check_writable(StorePath("s3", bucket.key, retry_s=0.5), "--output")


def test_a_checkpoint_of_another_process_is_visible_at_once(bucket: StorePath) -> None:
    assert manifest.list_checkpoints(bucket) == []

    subprocess.run([sys.executable, "-c", WRITE, str(bucket), "7"], check=True)

    checkpoints = until("the other's checkpoint", lambda: manifest.list_checkpoints(bucket), 5.0)
    assert [checkpoint.name for checkpoint in checkpoints] == ["checkpoint-000000007"]
