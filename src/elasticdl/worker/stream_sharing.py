"""Where streams stand, told to all workers, so that whoever takes a stream over enters it there.

A worker knows the states of the streams it has read. All members tell each other theirs before streams change hands,
before a checkpoint, and every so many steps for the case that a worker is killed. The states are then in checkpoints
and in what newcomers receive, beside the script's state; they are not compared, since workers know different ones.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from safetensors.torch import load, save

from elasticdl.checkpoint import values
from elasticdl.collective.group import Group
from elasticdl.collective.tree import Share
from elasticdl.worker.stream_requests import StreamPositions

SHARE_STEPS = 100  # what a killed worker has read since then is read again by whoever takes its streams over
_TEXT = "text"


def share_positions(positions: StreamPositions, share: Share, group: Group) -> None:
    """Every member then knows where all streams stand. Called by all members at the same step."""
    if group.size == 1:
        return
    own = _encode(positions.state_dict(range(share.first, share.stop)))
    lengths = torch.empty(group.size, dtype=torch.int64)
    group.allgather(lengths, torch.tensor([len(own)]))
    longest = int(lengths.max())
    if not longest:
        return
    part = torch.zeros(longest, dtype=torch.uint8)
    part[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8) if own else part[:0]
    everyone = torch.empty(group.size * longest, dtype=torch.uint8)
    group.allgather(everyone, part)
    for rank, (length, row) in enumerate(zip(lengths.tolist(), everyone.view(group.size, longest), strict=True)):
        if length and rank != group.rank:
            positions.load_state_dict(_decode(row[:length].numpy().tobytes()))


def _encode(state: dict[str, Any]) -> bytes:
    """Nothing at all where there is no state."""
    if not state:
        return b""
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(values.pack(state, "state", tensors))
    return save({**tensors, _TEXT: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)})


def _decode(content: bytes) -> Any:
    tensors = load(content)
    return values.unpack(json.loads(tensors.pop(_TEXT).numpy().tobytes()), tensors)
