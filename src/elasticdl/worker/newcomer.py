"""A newcomer catches up: it receives the state and follows the others' updates until told to enter."""

from __future__ import annotations

from collections.abc import Callable

import torch

from elasticdl.checkpoint.image import Image
from elasticdl.collective.frames import Frame
from elasticdl.collective.handover import Reception
from elasticdl.errors import HandoverFailed, RoundBroken
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.testing.faults import Moment
from elasticdl.worker.batch import Update
from elasticdl.worker.donor import BUFFER
from elasticdl.worker.guard import set_hyperparameters
from elasticdl.worker.link import Link
from elasticdl.worker.rounds import Rounds
from elasticdl.worker.training import Training


def catch_up(
    message: pb.Round, rounds: Rounds, link: Link, training: Training, strike: Callable[[Moment], None]
) -> int:
    """The round to enter, with the state of the step before it. Raises HandoverFailed where the donor gives none."""
    donor, address = rounds.donor_of(message)
    try:
        reception = Reception.connect(address, link.credentials, link.timing.build_s, link.timing.handover_s)
    except RoundBroken as exc:
        raise HandoverFailed(donor, str(exc)) from exc
    rounds.follow(address, reception.abort)

    def load(image: Image) -> None:
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
        training.forget()  # it may be behind: only a whole hand-over counts
        raise HandoverFailed(donor, str(exc)) from exc
    finally:
        rounds.follow("", None)
        reception.close()


def apply_update(training: Training, frame: Frame) -> None:
    """Repeat what the donor did. Raises RoundBroken where the update does not lead on from the state that is here."""
    header, gradients = frame.header, training.gradients
    if header["is_first"] and training.position != header["from"]:
        raise RoundBroken(f"an update of position {header['from']} for a state of position {training.position}")
    buffer = gradients.buffer()
    if "gradient" in frame.tensors:
        gradients.flat(buffer).copy_(frame.tensors["gradient"])
    buffers: dict[str, torch.Tensor] = {
        name.removeprefix(BUFFER): tensor for name, tensor in frame.tensors.items() if name.startswith(BUFFER)
    }
    training.replay(buffer, Update.of(header["update"]), buffers, header)
    gradients.release([buffer])
    if "user_state" in header:
        training.load_user_state(header["user_state"], frame.tensors)
        for optimizer, groups in zip(training.optimizers, header["hyperparameters"], strict=True):
            set_hyperparameters(optimizer, groups)
