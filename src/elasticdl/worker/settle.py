"""Agreement at the start of a forced round: the highest applied step counts, those behind copy it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from elasticdl.checkpoint.image import Image
from elasticdl.collective import frames
from elasticdl.collective.frames import Frame
from elasticdl.collective.group import Group
from elasticdl.worker.training import NO_STATE, Training


def settle(group: Group, training: Training, first_state: Callable[[], None]) -> Image | None:
    """After it every member holds the same state. `first_state` makes one where nobody holds any.

    Returns the image where this member was behind, and holds the state of another now.
    """
    positions = _positions(group, training.position)
    if max(positions) == NO_STATE:
        if group.rank == 0:
            first_state()
        positions = _positions(group, training.position)
    if len(set(positions)) == 1:
        return None
    root = positions.index(max(positions))
    image = _broadcast(group, training.capture() if group.rank == root else None, root)
    if training.position == max(positions):
        return None
    training.load(image)
    return image


def _positions(group: Group, own: int) -> list[int]:
    positions = torch.empty(group.size, dtype=torch.int64)
    group.allgather(positions, torch.tensor([own], dtype=torch.int64))
    return [int(position) for position in positions]


def _broadcast(group: Group, image: Image | None, root: int) -> Image:
    if image is not None:
        header = {"step": image.step, "records": image.records, "meta": image.meta}
        text = torch.frombuffer(bytearray(frames.encode(Frame(header, image.tensors))), dtype=torch.uint8)
    else:
        text = torch.empty(0, dtype=torch.uint8)
    length = torch.tensor([len(text)])
    group.broadcast(length, root)
    if image is None:
        text = torch.empty(int(length), dtype=torch.uint8)
    group.broadcast(text, root)
    frame = Frame({}, image.tensors) if image is not None else frames.decode(bytes(text.numpy()), frames.MEMORY_BYTES)
    for tensor in frame.tensors.values():
        if tensor.numel():
            group.broadcast(tensor.view(-1).view(torch.uint8), root)
    if image is not None:
        return image
    return Image(frame.header["step"], frame.header["records"], frame.tensors, frame.header["meta"])
