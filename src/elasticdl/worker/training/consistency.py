"""Checks that replicas do not diverge: workers compare digests of their training state."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from elasticdl.checkpoint import values
from elasticdl.collective.group import Group
from elasticdl.errors import ReplicasDiverged

if TYPE_CHECKING:
    from elasticdl.worker.training.state import TrainingState

_DIGEST_BITS = 24  # a float32 of the tail holds this many exactly
_ROW_WORDS = 64  # words
_WEIGHT_FACTOR = -7046029254386353131  # an odd number with bits all over
_SMALL_ELEMENTS = 1 << 15  # elements
_CACHED_WEIGHTS = 1 << 14  # weights
_MAX_NAMED = 3  # tensors in the error
_MODULES_WITH_MODE = (  # modules of torch that compute something else in eval()
    _NormBase, _DropoutNd, nn.RNNBase, nn.MultiheadAttention, nn.RReLU,
)  # fmt: skip
_POSITION_NAME = "the number of updates so far"


class ConsistencyGuard:
    """Compares the training state of this worker with that of the others."""

    def __init__(self, every: int) -> None:
        """`every`: steps between two comparisons of the whole state; 0: only compare what costs nothing."""
        self._every = every
        self._groups: list[dict[str, Any]] = []  # of all optimizers; they stay the same, see OptimizerLayout
        self._rates: list[Any] = []
        self._rates_digest = 0

    def is_due(self, step: int, *, is_saved: bool) -> bool:
        """Whether the whole state is compared in this step. `is_saved`: a checkpoint follows it."""
        return bool(self._every) and step > 0 and (is_saved or step % self._every == 0)

    def digest(self, training: TrainingState, *, is_whole: bool) -> int:
        """A number that is the same in all workers, and fits into the tail."""
        if is_whole:
            return _text_digest(
                repr((hyperparameter_entries(training), mode_entries(training), state_digest(training)))
            )
        if not self._groups:
            self._groups = [group for optimizer in training.optimizers for group in optimizer.param_groups]
        rates = [group["lr"] for group in self._groups]
        if rates != self._rates:
            numbers = [float(rate) for rate in rates]  # copies: a rate that is a tensor changes in place
            self._rates, self._rates_digest = numbers, _text_digest(repr(numbers))
        return (self._rates_digest + training.position) & ((1 << _DIGEST_BITS) - 1)

    def check_equal(
        self, digests: Sequence[int], workers: Sequence[str], group: Group, training: TrainingState, *, is_whole: bool
    ) -> None:
        """Raise ReplicasDiverged if `digests`, by rank, are not all the same. Called by all members or by none."""
        if len(set(digests)) <= 1:
            return
        entries = hyperparameter_entries(training)
        if is_whole:
            entries += mode_entries(training) + state_entries(training)
        table = _gather_numbers(entries, group)
        raise ReplicasDiverged(_describe_difference([name for name, _ in entries], table, workers, training.step))


def _text_digest(text: str) -> int:
    return zlib.crc32(text.encode()) & ((1 << _DIGEST_BITS) - 1)


def state_digest(training: TrainingState) -> tuple[int, ...]:
    """The numbers of `state_entries`, in fewer calls: small tensors are summed together."""
    small: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    sums = []
    for _, tensor in _iterate_tensors(training):
        if tensor.numel() < _SMALL_ELEMENTS:
            small.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach().reshape(-1))
        else:
            sums.append(checksum(tensor))
    sums += [checksum(torch.cat(tensors)) for tensors in small.values()]
    numbers = tuple(torch.stack([total.to("cpu") for total in sums]).tolist()) if sums else ()
    return numbers + tuple(number for _, number in user_state_entries(training))


def hyperparameter_entries(training: TrainingState) -> list[tuple[str, int]]:
    """Digests of the position, the learning rates and all other numbers of the optimizers' groups."""
    return [(_POSITION_NAME, training.position)] + [
        (
            f"learning rate and hyperparameters of optimizer {number}, group {index}",
            zlib.crc32(repr(sorted(group.items())).encode()),
        )
        for number, optimizer in enumerate(training.optimizers)
        for index, group in enumerate(get_hyperparameters(optimizer))
    ]


def mode_entries(training: TrainingState) -> list[tuple[str, int]]:
    """Whether modules are in train() or eval(): a script that evaluates may forget to call train() again."""
    return [
        (f"train() or eval() of {name or 'the model'}", int(module.training))
        for name, module in training.model.named_modules()
        if isinstance(module, _MODULES_WITH_MODE) or not type(module).__module__.startswith("torch.nn.modules.")
    ]


def state_entries(training: TrainingState) -> list[tuple[str, int]]:
    """Digests of all tensors, in an order that all workers share."""
    names, sums = [], []
    for name, tensor in _iterate_tensors(training):
        names.append(name)
        sums.append(checksum(tensor))
    numbers = torch.stack([total.to("cpu") for total in sums]).tolist() if sums else []
    return [*zip(names, numbers, strict=True), *user_state_entries(training)]


def user_state_entries(training: TrainingState) -> list[tuple[str, int]]:
    """Digests of the objects that the script registered."""
    entries: list[tuple[str, int]] = []
    for name, item in training.user_state.objects.items():
        tensors: dict[str, torch.Tensor] = {}
        packed = values.pack_value(item.state_dict(), name, tensors)
        entries.append((f"state {name!r}", zlib.crc32(repr(packed).encode())))
        entries += [(f"state {key!r}", int(checksum(tensor))) for key, tensor in tensors.items()]
    return entries


def _iterate_tensors(training: TrainingState) -> Iterator[tuple[str, torch.Tensor]]:
    names = {id(parameter): name for name, parameter in training.model.named_parameters()}
    yield from training.model.named_parameters()
    yield from training.model.named_buffers()
    for number, optimizer in enumerate(training.optimizers):
        # Not in the order of `state`, which is that of first gradients and differs after a restore.
        for parameter in [parameter for group in optimizer.param_groups for parameter in group["params"]]:
            for slot, value in sorted(optimizer.state.get(parameter, {}).items()):
                if isinstance(value, torch.Tensor):
                    yield f"{slot} of {names.get(id(parameter), '?')} in optimizer {number}", value


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """A sum of the 64-bit words of `tensor`, weighted by the row they stand in, at the speed of memory.

    Weights are odd, so one changed word always changes the sum. Words that are swapped within a row do not: this
    detects replicas that diverge, not forgeries.
    """
    bits = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    if bits.storage_offset() % 8:
        bits = bits.clone()
    if bits.numel() % 8:
        bits = torch.nn.functional.pad(bits, (0, -bits.numel() % 8))
    words = bits.view(torch.int64)
    in_rows = words.numel() // _ROW_WORDS * _ROW_WORDS
    total = words[in_rows:].sum() * _WEIGHT_FACTOR
    if in_rows:
        sums = words[:in_rows].view(-1, _ROW_WORDS).sum(1)
        total = total + (sums * _row_weights(len(sums), words.device)).sum()
    return total


def _row_weights(count: int, device: torch.device) -> torch.Tensor:
    """Odd numbers with bits all over, the same everywhere."""
    return _cached_weights(device)[:count] if count <= _CACHED_WEIGHTS else _make_weights(count, device)


@cache
def _cached_weights(device: torch.device) -> torch.Tensor:
    return _make_weights(_CACHED_WEIGHTS, device)


def _make_weights(count: int, device: torch.device) -> torch.Tensor:
    numbers = torch.arange(1, count + 1, device=device) * _WEIGHT_FACTOR
    return (numbers ^ (numbers >> 29)) * _WEIGHT_FACTOR | 1


def get_hyperparameters(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The numbers of each group, as JSON values: learning rate, momentum and the like."""
    return [
        {
            name: number
            for name, value in group.items()
            if (number := _to_number(value)) is not None and name != "params"
        }
        for group in optimizer.param_groups
    ]


def set_hyperparameters(optimizer: torch.optim.Optimizer, groups: Sequence[dict[str, Any]]) -> None:
    """The inverse of `get_hyperparameters`."""
    for group, numbers in zip(optimizer.param_groups, groups, strict=True):
        for name, number in numbers.items():
            if isinstance(group.get(name), torch.Tensor):
                group[name].fill_(number)
            else:
                group[name] = tuple(number) if isinstance(number, list) else number


def _to_number(value: Any) -> Any:
    """A number, or a list of them, as JSON holds it; None for everything else."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else None
    if isinstance(value, np.generic):  # a scheduler that uses NumPy leaves such numbers in a group
        value = value.item()
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list):
        numbers = [_to_number(item) for item in value]
        return numbers if all(isinstance(number, bool | int | float) for number in numbers) else None
    return None


def _gather_numbers(entries: Sequence[tuple[str, int]], group: Group) -> list[list[int]]:
    """The numbers of all members, by rank. If one has more entries than another, the last ones are left out."""
    counts = torch.empty(group.size, dtype=torch.int64)
    group.allgather(counts, torch.tensor([len(entries)], dtype=torch.int64))
    count = int(counts.min())
    own = torch.tensor([number for _, number in entries[:count]], dtype=torch.int64)
    everyone = torch.empty(group.size * count, dtype=torch.int64)
    group.allgather(everyone, own)
    return everyone.view(group.size, count).tolist()


def _describe_difference(
    names: Sequence[str], table: Sequence[Sequence[int]], workers: Sequence[str], step: int
) -> str:
    columns = list(zip(*table, strict=True))
    differing = [index for index, column in enumerate(columns) if len(set(column)) > 1]
    if not differing:
        return f"the workers {', '.join(workers)} hold different numbers of tensors before step {step}"
    sides: dict[int, list[str]] = {}
    for worker, number in zip(workers, columns[differing[0]], strict=True):
        sides.setdefault(number, []).append(worker)
    parties = " against ".join(" and ".join(party) for party in sides.values())
    if names[differing[0]] == _POSITION_NAME:
        return (
            f"near step {step} the workers are in different updates ({parties}): `for batch in step` must run equally "
            "often in all workers, so it must not depend on job.is_first or on what only one of them knows"
        )
    named = [names[index] for index in differing[:_MAX_NAMED]]
    more = f" and {len(differing) - _MAX_NAMED} more" if len(differing) > _MAX_NAMED else ""
    return (
        f"before step {step} the workers do not hold the same state: {', '.join(named)}{more} "
        f"differ ({parties}). Something in the script changes the state in one worker and not in the others, or at a "
        "place where a newcomer does not see it: pass it to join as schedulers=, state= or after_update=; after an "
        "evaluation call model.train()"
    )
