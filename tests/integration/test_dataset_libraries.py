"""Datasets of other libraries, as their users write them: Hugging Face's, WebDataset's, torchdata's."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import webdataset
from torch import nn
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import elasticdl.torch as elastic
from elasticdl.collective.tree import RankRange
from elasticdl.data.plan import TrainingPlan
from elasticdl.worker.reading.loader import LoaderFeed, LoaderOptions
from elasticdl.worker.reading.stream_requests import StreamRequests
from elasticdl.worker.reading.streams import open_streams

RECORDS, SHARDS = 48, 8


def train(data: Any, key: str = "number", **how: Any) -> list[int]:
    """The numbers of the records, in the order they were trained."""
    model = nn.Linear(1, 1)
    job = elastic.join(model, torch.optim.SGD(model.parameters(), lr=0.0), data, **how)
    numbers: list[int] = []
    for step in job:
        for batch in step:
            numbers += [int(number) for number in batch[key]]
            step.backward(model(torch.as_tensor(batch[key]).float().reshape(-1, 1)).mean())
    return numbers


def make_examples(shards: list[int]) -> Iterator[dict[str, Any]]:
    each = RECORDS // SHARDS
    for shard in shards:
        for number in range(shard * each, (shard + 1) * each):
            yield {"number": number, "text": f"number {number}"}


def hugging_stream() -> Any:
    return datasets.IterableDataset.from_generator(make_examples, gen_kwargs={"shards": list(range(SHARDS))})


def test_a_dataset_of_hugging_face_is_a_map_style_dataset() -> None:
    data = datasets.Dataset.from_list(list(make_examples(list(range(SHARDS))))).with_format("torch")
    for num_workers in (0, 1):
        loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=num_workers)
        numbers = train(loader, epochs=2, logical_ranks=2)
        assert sorted(numbers[:RECORDS]) == sorted(numbers[RECORDS:]) == list(range(RECORDS))
        assert numbers == train(loader, epochs=2, logical_ranks=2)
    assert sorted(train(data, global_batch_size=8)) == list(range(RECORDS))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stream_of_hugging_face_shards_itself_by_logical_ranks(num_workers: int) -> None:
    how: dict[str, Any] = {"records_per_epoch": RECORDS, "epochs": 2, "logical_ranks": 4, "num_workers": num_workers}
    numbers = train(hugging_stream(), global_batch_size=8, **how)
    assert sorted(numbers[:RECORDS]) == sorted(numbers[RECORDS:]) == list(range(RECORDS))
    shuffled = train(hugging_stream().shuffle(seed=1, buffer_size=5), global_batch_size=8, **how)
    assert sorted(shuffled[:RECORDS]) == sorted(shuffled[RECORDS:]) == list(range(RECORDS))
    assert numbers != shuffled != shuffled[RECORDS:] + shuffled[:RECORDS]


def open_feed(dataset: Any) -> LoaderFeed:
    plan = TrainingPlan(RECORDS, global_batch=8, logical_ranks=4, shuffle=False)
    requests = StreamRequests(open_streams(dataset, 4, 0, plan.steps_per_epoch, 2), plan, list)
    return LoaderFeed(requests, plan, LoaderOptions(), torch.device("cpu")).start()


def numbers_of(feed: LoaderFeed, step: int) -> list[list[int]]:
    feed.prefetch(step, RankRange(0, 4))
    batches = [feed.read_batch(step, rank) for rank in range(4)]
    return [[record["number"] for record in batch.value] if batch else [] for batch in batches]


@pytest.mark.parametrize(("is_shuffled", "has_state"), [(False, True), (True, False)])
def test_a_stream_of_hugging_face_continues_at_its_current_record(is_shuffled: bool, has_state: bool) -> None:
    def dataset() -> Any:
        return hugging_stream().shuffle(seed=3, buffer_size=7) if is_shuffled else hugging_stream()

    first, second = open_feed(dataset()), open_feed(dataset())
    steps = [numbers_of(first, step) for step in range(6)]
    assert sorted(chain(*chain(*steps))) == list(range(RECORDS))
    again = open_feed(dataset())
    for step in range(4):
        numbers_of(again, step)
    assert isinstance(again.requests, StreamRequests) and isinstance(second.requests, StreamRequests)
    states = json.loads(json.dumps(again.requests.positions.state_dict()))  # as a checkpoint keeps them
    assert bool(states) == has_state  # the state of a shuffle buffer is not exact: records are skipped instead
    second.requests.positions.load_state_dict(states)
    assert [numbers_of(second, step) for step in (4, 5)] == steps[4:]


@pytest.fixture
def tar_files(tmp_path: Path) -> str:
    for shard in range(SHARDS):
        with tarfile.open(tmp_path / f"part-{shard}.tar", "w") as archive:
            for example in make_examples([shard]):
                content = json.dumps(example).encode()
                entry = tarfile.TarInfo(f"{example['number']:06}.json")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return str(tmp_path / f"part-{{0..{SHARDS - 1}}}.tar")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # its own
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_web_dataset_shards_itself_by_logical_ranks(tar_files: str, num_workers: int) -> None:
    data = webdataset.WebDataset(tar_files, shardshuffle=False).decode().map(lambda sample: sample["json"])
    how: dict[str, Any] = {"records_per_epoch": RECORDS, "epochs": 2, "logical_ranks": 4, "num_workers": num_workers}
    numbers = train(data, global_batch_size=8, **how)
    assert sorted(numbers[:RECORDS]) == sorted(numbers[RECORDS:]) == list(range(RECORDS))
    shuffled = data.compose(webdataset.detshuffle(bufsize=6, initial=2, seed=1))
    numbers = train(shuffled, global_batch_size=8, **how)
    assert sorted(numbers[:RECORDS]) == sorted(numbers[RECORDS:]) == list(range(RECORDS))
    assert numbers == train(shuffled, global_batch_size=8, **how)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own
def test_a_stateful_loader_is_read_as_a_loader() -> None:
    data = datasets.Dataset.from_list(list(make_examples(list(range(SHARDS))))).with_format("torch")
    runs = [train(StatefulDataLoader(data, batch_size=8, shuffle=True), logical_ranks=2, epochs=2) for _ in range(2)]
    assert runs[0] == runs[1] and runs[0][:RECORDS] != runs[0][RECORDS:]
    assert sorted(runs[0][:RECORDS]) == sorted(runs[0][RECORDS:]) == list(range(RECORDS))
    stream = StatefulDataLoader(hugging_stream(), batch_size=8)
    assert sorted(train(stream, records_per_epoch=RECORDS, logical_ranks=2)) == list(range(RECORDS))
