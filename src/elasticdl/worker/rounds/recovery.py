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
from elasticdl.errors import RoundBroken, StateTransferFailed
from elasticdl.faults import Moment
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.rounds.membership import RoundMembership
from elasticdl.worker.rounds.shared_state import SharedState
from elasticdl.worker.training.state import NO_STATE


def recover_state(group: Group, state: SharedState, make_first_state: Callable[[], None]) -> CapturedState | None:
    """Let every member hold the same state. `make_first_state` makes one if no member holds any.

    Returns the state if this member was behind, and now holds the state of another one.
    """
    positions = _gather_positions(group, state.position)
    if max(positions) == NO_STATE:
        if group.rank == 0:
            make_first_state()
        positions = _gather_positions(group, state.position)
    if len(set(positions)) == 1:
        return None
    root = positions.index(max(positions))
    newest = _broadcast_state(group, state.capture() if group.rank == root else None, root)
    if state.position == max(positions):
        return None
    state.load(newest)
    return newest


def _gather_positions(group: Group, own: int) -> list[int]:
    positions = torch.empty(group.size, dtype=torch.int64)
    group.allgather(positions, torch.tensor([own], dtype=torch.int64))
    return [int(position) for position in positions]


def _broadcast_state(group: Group, state: CapturedState | None, root: int) -> CapturedState:
    if state is not None:
        header = {"step": state.step, "records": state.records, "meta": state.meta}
        text = torch.frombuffer(bytearray(frames.encode_frame(Frame(header, state.tensors))), dtype=torch.uint8)
    else:
        text = torch.empty(0, dtype=torch.uint8)
    length = torch.tensor([len(text)])
    group.broadcast(length, root)
    if state is None:
        text = torch.empty(int(length), dtype=torch.uint8)
    group.broadcast(text, root)
    frame = (
        Frame({}, state.tensors) if state is not None else frames.decode_frame(bytes(text.numpy()), frames.MEMORY_BYTES)
    )
    for tensor in frame.tensors.values():
        if tensor.numel():
            group.broadcast(tensor.view(-1).view(torch.uint8), root)
    if state is not None:
        return state
    return CapturedState(frame.header["step"], frame.header["records"], frame.tensors, frame.header["meta"])


def catch_up(
    message: pb.Round,
    rounds: RoundMembership,
    master: MasterConnection,
    state: SharedState,
    inject_fault: Callable[[Moment], None],
) -> int:
    """Receive the state of the step before a round from its donor; returns the round to enter.

    Raises StateTransferFailed if the donor sends no whole state.
    """
    donor, address = rounds.find_donor(message)
    try:
        receiver = StateReceiver.connect(
            address, master.credentials, master.timing.round_timeout_s, master.timing.state_transfer_timeout_s
        )
    except RoundBroken as exc:
        raise StateTransferFailed(donor, str(exc)) from exc
    rounds.follow_donor(address, receiver.abort)

    def load(captured: CapturedState) -> None:
        master.activity.begin(pb.RECEIVING)
        state.load(captured)
        master.activity.begin(pb.WAITING)  # for the donor, with a deadline of its own
        inject_fault("loaded")

    def apply(frame: Frame) -> None:
        master.activity.begin(pb.RECEIVING)
        state.apply_update(frame)
        master.activity.begin(pb.WAITING)
        inject_fault("updated")

    try:
        inject_fault("requested")
        return receiver.follow(load, apply)
    except RoundBroken as exc:
        state.discard()  # it may be behind: only a whole state transfer counts
        raise StateTransferFailed(donor, str(exc)) from exc
    finally:
        rounds.follow_donor("", None)
        receiver.close()
