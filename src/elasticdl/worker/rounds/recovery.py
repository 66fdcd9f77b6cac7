"""How a worker gets the state of the others.

Either by agreement in a forced round, or by state transfer while the others train on.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.collective import frames
from elasticdl.collective.frames import Frame
from elasticdl.collective.group import Group
from elasticdl.collective.state_transfer import StateReceiver
from elasticdl.errors import HandoverFailed, RoundBroken
from elasticdl.faults import Moment
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.rounds.donor import BUFFER_PREFIX
from elasticdl.worker.rounds.membership import RoundMembership
from elasticdl.worker.training.adaptive_batch import Update
from elasticdl.worker.training.consistency import set_hyperparameters
from elasticdl.worker.training.state import NO_STATE, TrainingState


def recover_state(group: Group, training: TrainingState, first_state: Callable[[], None]) -> CapturedState | None:
    """After it every member holds the same state. `first_state` makes one where nobody holds any.

    Returns the image where this member was behind, and holds the state of another now.
    """
    positions = _gather_positions(group, training.position)
    if max(positions) == NO_STATE:
        if group.rank == 0:
            first_state()
        positions = _gather_positions(group, training.position)
    if len(set(positions)) == 1:
        return None
    root = positions.index(max(positions))
    image = _broadcast_image(group, training.capture() if group.rank == root else None, root)
    if training.position == max(positions):
        return None
    training.load(image)
    return image


def _gather_positions(group: Group, own: int) -> list[int]:
    positions = torch.empty(group.size, dtype=torch.int64)
    group.allgather(positions, torch.tensor([own], dtype=torch.int64))
    return [int(position) for position in positions]


def _broadcast_image(group: Group, image: CapturedState | None, root: int) -> CapturedState:
    if image is not None:
        header = {"step": image.step, "records": image.records, "meta": image.meta}
        text = torch.frombuffer(bytearray(frames.encode_frame(Frame(header, image.tensors))), dtype=torch.uint8)
    else:
        text = torch.empty(0, dtype=torch.uint8)
    length = torch.tensor([len(text)])
    group.broadcast(length, root)
    if image is None:
        text = torch.empty(int(length), dtype=torch.uint8)
    group.broadcast(text, root)
    frame = (
        Frame({}, image.tensors) if image is not None else frames.decode_frame(bytes(text.numpy()), frames.MEMORY_BYTES)
    )
    for tensor in frame.tensors.values():
        if tensor.numel():
            group.broadcast(tensor.view(-1).view(torch.uint8), root)
    if image is not None:
        return image
    return CapturedState(frame.header["step"], frame.header["records"], frame.tensors, frame.header["meta"])


def catch_up(
    message: pb.Round,
    rounds: RoundMembership,
    link: MasterConnection,
    training: TrainingState,
    strike: Callable[[Moment], None],
) -> int:
    """The round to enter, with the state of the step before it. Raises HandoverFailed where the donor gives none."""
    donor, address = rounds.find_donor(message)
    try:
        reception = StateReceiver.connect(address, link.credentials, link.timing.build_s, link.timing.handover_s)
    except RoundBroken as exc:
        raise HandoverFailed(donor, str(exc)) from exc
    rounds.follow_donor(address, reception.abort)

    def load(image: CapturedState) -> None:
        link.activity.begin(pb.RECEIVING)
        training.load(image)
        link.activity.begin(pb.WAITING)  # for the donor, with a deadline of its own
        strike("received")

    def apply(frame: Frame) -> None:
        link.activity.begin(pb.RECEIVING)
        apply_update(training, frame)
        link.activity.begin(pb.WAITING)
        strike("followed")

    try:
        strike("asked")
        return reception.follow(load, apply)
    except RoundBroken as exc:
        training.discard()  # it may be behind: only a whole hand-over counts
        raise HandoverFailed(donor, str(exc)) from exc
    finally:
        rounds.follow_donor("", None)
        reception.close()


def apply_update(training: TrainingState, frame: Frame) -> None:
    """Repeat what the donor did. Raises RoundBroken where the update does not lead on from the state that is here."""
    header, gradients = frame.header, training.gradients
    if header["is_first"] and training.position != header["from"]:
        raise RoundBroken(f"an update of position {header['from']} for a state of position {training.position}")
    buffer = gradients.acquire()
    if "gradient" in frame.tensors:
        gradients.flat(buffer).copy_(frame.tensors["gradient"])
    buffers: dict[str, torch.Tensor] = {
        name.removeprefix(BUFFER_PREFIX): tensor
        for name, tensor in frame.tensors.items()
        if name.startswith(BUFFER_PREFIX)
    }
    training.replay_update(buffer, Update.from_header(header["update"]), buffers, header)
    gradients.release([buffer])
    if "user_state" in header:
        training.load_user_state(header["user_state"], frame.tensors)
        for optimizer, groups in zip(training.optimizers, header["hyperparameters"], strict=True):
            set_hyperparameters(optimizer, groups)
