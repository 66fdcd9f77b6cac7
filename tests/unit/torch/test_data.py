"""How `join` reads a dataset, a DataLoader and their options."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import elasticdl.torch as elastic
from elasticdl.errors import DataError, SpecError
from elasticdl.torch.data import describe_data, draw_order, make_tensor_fetcher


class Items(Dataset[dict[str, Any]]):
    def __init__(self, count: int = 20) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"x": torch.full((2,), float(number)), "nested": {"number": number}}


def train(data: Any, **how: Any) -> tuple[list[list[int]], torch.Tensor]:
    """The numbers seen in each batch, and the weight that was learnt."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    job = elastic.join(model, torch.optim.SGD(model.parameters(), lr=1e-4), data, **how)
    batches = []
    for step in job:
        for batch in step:
            batches.append(batch["nested"]["number"].tolist())
            step.backward(model(batch["x"]).mean())
    return batches, model.weight.detach().clone()


def test_a_loader_provides_its_batch_size_and_its_order() -> None:
    batches, _ = train(DataLoader(Items(), batch_size=8))
    assert batches == [list(range(8)), list(range(8, 16)), list(range(16, 20))]
    assert train(DataLoader(Items(), batch_size=8, drop_last=True))[0] == batches[:2]
    assert train(DataLoader(Items(), batch_size=8), global_batch_size=20)[0] == [list(range(20))]


def test_a_shuffled_loader_trains_every_record_once_per_epoch() -> None:
    batches, _ = train(DataLoader(Items(), batch_size=5, shuffle=True), epochs=2)
    first, second = list(chain(*batches[:4])), list(chain(*batches[4:]))
    assert sorted(first) == sorted(second) == list(range(20)) and first != second != list(range(20))


def test_a_loader_and_its_dataset_train_alike() -> None:
    loader, plain = train(DataLoader(Items(), batch_size=5)), train(Items(), global_batch_size=5, shuffle=False)
    assert loader[0] == plain[0] and torch.equal(loader[1], plain[1])


def test_batches_of_pairs_are_pairs() -> None:
    model = nn.Linear(3, 1)
    data = TensorDataset(torch.randn(8, 3), torch.arange(8.0))
    for data_or_loader in (DataLoader(data, batch_size=4), data):
        job = elastic.join(model, torch.optim.SGD(model.parameters(), lr=0.0), data_or_loader, global_batch_size=4)
        for step in job:
            for features, labels in step:
                assert features.shape == (4, 3) and labels.shape == (4,)
                step.backward((model(features).squeeze(1) - labels).mean())


def test_collate_fn_is_called_for_a_dataset_too() -> None:
    def collate(items: list[Any]) -> dict[str, Any]:
        return {"x": torch.zeros(len(items), 2), "nested": {"number": torch.tensor([-1] * len(items))}}

    assert train(Items(4), global_batch_size=2, collate_fn=collate)[0] == [[-1, -1], [-1, -1]]


@pytest.mark.parametrize("sampler", [WeightedRandomSampler([1.0] * 10, 12), SubsetRandomSampler(range(3, 9))])
def test_a_sampler_draws_a_new_order_each_epoch_and_the_same_in_every_run(sampler: Sampler[int]) -> None:
    runs = [train(DataLoader(Items(), batch_size=3, sampler=sampler), epochs=2, seed=5)[0] for _ in range(2)]
    assert runs[0] == runs[1]
    half = len(runs[0]) // 2
    assert runs[0][:half] != runs[0][half:]
    assert train(DataLoader(Items(), batch_size=3, sampler=sampler), epochs=2, seed=6)[0] != runs[0]


def test_a_subset_is_trained_once_per_epoch() -> None:
    batches, _ = train(DataLoader(Items(), batch_size=4, sampler=SubsetRandomSampler(range(3, 9))), logical_ranks=2)
    assert sorted(chain(*batches)) == list(range(3, 9))


def test_the_order_does_not_depend_on_earlier_draws_of_the_generator() -> None:
    sampler = RandomSampler(range(10), replacement=True, generator=torch.Generator())
    late = draw_order(sampler, 1, 3, 10)
    draw_order(sampler, 1, 0, 10)
    assert np.array_equal(draw_order(sampler, 1, 3, 10), late)


class Rotating(Sampler[int]):
    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        yield from ((number + self.epoch) % 4 for number in range(4))


def test_set_epoch_is_called() -> None:
    assert train(DataLoader(Items(), batch_size=4, sampler=Rotating()), epochs=2)[0] == [[0, 1, 2, 3], [1, 2, 3, 0]]


class Historic(Sampler[int]):
    def __init__(self) -> None:
        self.random = random.Random(1)

    def __iter__(self) -> Iterator[int]:
        yield from self.random.sample(range(20), 20)


def test_a_sampler_whose_order_depends_on_earlier_draws_is_refused() -> None:
    with pytest.raises(SpecError, match="Historic gave two different orders for the same epoch"):
        train(DataLoader(Items(), batch_size=4, sampler=Historic()))


def test_a_sampler_outside_the_dataset_is_refused() -> None:
    with pytest.raises(SpecError, match=r"must give numbers of items, 0 … 19; it gave 18 … 21"):
        train(DataLoader(Items(), batch_size=4, sampler=range(18, 22)))


def test_a_distributed_sampler_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    sampler: DistributedSampler[Any] = DistributedSampler(Items(), num_replicas=2, rank=1, shuffle=False)
    batches, _ = train(DataLoader(Items(), batch_size=10, sampler=sampler))
    assert batches == [list(range(10)), list(range(10, 20))]
    assert "DistributedSampler is replaced by the plan" in caplog.text


def test_a_batch_sampler_of_equal_batches_is_flattened() -> None:
    batches = BatchSampler(SequentialSampler(range(10)), 4, drop_last=False)
    assert train(DataLoader(Items(), batch_sampler=batches))[0] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with pytest.raises(SpecError, match=r"gives batches of 1 to 2 items; .* batch_size and sampler instead"):
        train(DataLoader(Items(), batch_sampler=[[0, 1], [2], [3, 4]]))


def test_options_that_the_loader_already_decides_are_refused() -> None:
    with pytest.raises(SpecError, match="join: shuffle is the DataLoader's; set it there"):
        describe_data(DataLoader(Items()), shuffle=True)
    with pytest.raises(SpecError, match="join: num_workers is the DataLoader's"):
        describe_data(DataLoader(Items()), num_workers=0)


def test_data_and_batch_sizes_that_cannot_be_counted_are_refused() -> None:
    with pytest.raises(SpecError, match="batch_size=None, so its dataset gives whole batches"):
        describe_data(DataLoader(Items(), batch_size=None))
    with pytest.raises(SpecError, match="give global_batch_size"):
        train(Items())
    with pytest.raises(SpecError, match="the DataLoader's batch_size=2 is smaller than the 4 logical ranks"):
        train(DataLoader(Items(), batch_size=2), logical_ranks=4)
    with pytest.raises(SpecError, match="records_per_epoch is for streams"):
        train(Items(), global_batch_size=2, records_per_epoch=4)
    with pytest.raises(DataError, match="expected a dataset with __len__ and __getitem__"):
        train(object(), global_batch_size=2)


def test_the_options_of_a_loader_are_used() -> None:
    loader = DataLoader(
        Items(), num_workers=1, prefetch_factor=3, timeout=7, worker_init_fn=print, multiprocessing_context="spawn",
        persistent_workers=True,
    )  # fmt: skip
    options = describe_data(loader).options
    assert (options.num_workers, options.prefetch_factor, options.timeout_s) == (1, 3, 7)
    assert options.worker_init_fn is print and options.multiprocessing_context.get_start_method() == "spawn"


def test_joining_draws_no_random_numbers() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    model = nn.Linear(1, 1, device="meta")  # draws no random numbers
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    elastic.join(model, optimizer, DataLoader(Items(), batch_size=4, sampler=SubsetRandomSampler(range(8))))
    assert torch.equal(torch.rand(3), expected)


class SlowTensors(TensorDataset):
    """Not a TensorDataset itself, so its items are read one by one."""


def test_only_plain_tensors_with_a_stacking_collation_are_read_in_one_slice() -> None:
    plain = TensorDataset(torch.zeros(4, 2))

    assert make_tensor_fetcher(describe_data(plain)) is not None
    assert make_tensor_fetcher(describe_data(DataLoader(plain, batch_size=2))) is not None
    assert make_tensor_fetcher(describe_data(plain, collate_fn=list)) is None
    assert make_tensor_fetcher(describe_data(SlowTensors(torch.zeros(4, 2)))) is None
    for tensor in (torch.zeros(2, 4).t(), torch.zeros(4, 2, requires_grad=True), nn.Parameter(torch.zeros(4))):
        assert make_tensor_fetcher(describe_data(TensorDataset(tensor))) is None
