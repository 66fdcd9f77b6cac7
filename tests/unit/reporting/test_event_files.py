"""Event files are those of TensorBoard: its own reader and writer are the oracle."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event as TensorBoardEvent
from tensorboard.compat.proto.summary_pb2 import Summary as TensorBoardSummary
from tensorboard.summary.writer.event_file_writer import EventFileWriter as TensorBoardWriter
from tensorboard.util import tensor_util

from elasticdl.reporting.event_file_pb2 import Event, SessionLog, Summary
from elasticdl.reporting.event_files import PATTERN, EventFileWriter, read_events, scalar_of

# TensorBoard looks for a module of this name, and does not load TensorFlow where it is there.
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))


def point(step: int, **scalars: float) -> Event:
    values = [Summary.Value(tag=tag, simple_value=number) for tag, number in scalars.items()]
    return Event(wall_time=1000.5 + step, step=step, summary=Summary(value=values))


def write(directory: Path, *events: Event) -> Path:
    writer = EventFileWriter(directory, flush_s=0.0)
    for event in events:
        writer.add(event)
    writer.close()
    (path,) = directory.glob(PATTERN)
    return path


def scalars(path: Path) -> list[tuple[float, int, str, float | None]]:
    return [(e.wall_time, e.step, value.tag, scalar_of(value)) for e in read_events(path) for value in e.summary.value]


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    start = Event(wall_time=1000.0, step=1, session_log=SessionLog(status=SessionLog.START))
    path = write(tmp_path, start, point(1, loss=0.5, rate=0.0), point(1 << 40, loss=float("inf")))

    first, session, *points = EventFileLoader(str(path)).Load()

    assert first.file_version == "brain.Event:2"
    assert session.session_log.status == session.session_log.START
    assert [(e.wall_time, e.step, value.tag, float(tensor_util.make_ndarray(value.tensor)))
            for e in points for value in e.summary.value] == [
        (1001.5, 1, "loss", 0.5), (1001.5, 1, "rate", 0.0), (1000.5 + (1 << 40), 1 << 40, "loss", float("inf"))
    ]  # fmt: skip
    assert scalars(path) == [
        (1001.5, 1, "loss", 0.5), (1001.5, 1, "rate", 0.0), (1000.5 + (1 << 40), 1 << 40, "loss", float("inf"))
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int32", "int64"])
def test_a_scalar_that_tensorflow_wrote_as_a_tensor_is_read(tmp_path: Path, kind: str) -> None:
    tensor = tensor_util.make_tensor_proto(np.array(3, dtype=kind))
    as_bytes = type(tensor)(dtype=tensor.dtype, tensor_content=np.array(3, dtype=kind).tobytes())
    writer = TensorBoardWriter(str(tmp_path))
    for content in (as_bytes,) if kind in ("float16", "int32", "int64") else (tensor, as_bytes):
        value = TensorBoardSummary.Value(tag="metric", tensor=content)
        writer.add_event(TensorBoardEvent(wall_time=5.0, step=7, summary=TensorBoardSummary(value=[value])))
    writer.close()
    (path,) = tmp_path.glob(PATTERN)

    assert set(scalars(path)) == {(5.0, 7, "metric", 3.0)}


def test_texts_and_histograms_are_no_points_of_a_curve(tmp_path: Path) -> None:
    writer = TensorBoardWriter(str(tmp_path))
    for content in (np.array(b"words"), np.zeros((3, 3), np.float32), np.zeros(0, np.float32)):
        value = TensorBoardSummary.Value(tag="other", tensor=tensor_util.make_tensor_proto(content))
        writer.add_event(TensorBoardEvent(step=1, summary=TensorBoardSummary(value=[value])))
    writer.close()
    (path,) = tmp_path.glob(PATTERN)

    assert [number for *_, number in scalars(path)] == [None, None, None]


@pytest.mark.parametrize("cut", [1, 3, 5, 20])
def test_a_file_is_read_up_to_a_record_that_was_cut_off(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path, *(point(step, loss=1.0 / step) for step in range(1, 6)))
    path.write_bytes(path.read_bytes()[:-cut])

    assert [step for _, step, _, _ in scalars(path)] == [1, 2, 3, 4]


def test_a_file_is_read_up_to_a_damaged_record(tmp_path: Path) -> None:
    path = write(tmp_path, *(point(step, loss=1.0 / step) for step in range(1, 6)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    steps = [step for _, step, _, _ in scalars(path)]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) < 5
