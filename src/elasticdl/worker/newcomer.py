"""A newcomer catches up: it receives the state and follows the others' updates until told to enter."""

from __future__ import annotations

import torch

from elasticdl.collective.frames import Frame
from elasticdl.collective.handover import Reception
from elasticdl.errors import RoundBroken
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.batch import Update
from elasticdl.worker.donor import BUFFER
from elasticdl.worker.guard import set_hyperparameters
from elasticdl.worker.link import Link
from elasticdl.worker.rounds import Rounds
from elasticdl.worker.training import Training


def catch_up(message: pb.Round, rounds: Rounds, link: Link, training: Training) -> int:
    """The round to enter, with the state of the step before it. Raises RoundBroken where the hand-over fails."""
    donor = rounds.donor_of(message)
    reception = Reception.connect(donor, link.token, link.worker, link.timing.build_s)
    rounds.follow(donor, reception.abort)
    try:
        return reception.follow(training.load, lambda frame: _apply(training, frame))
    except RoundBroken:
        training.forget()  # it may be behind: only a whole hand-over counts
        raise
    finally:
        rounds.follow("", None)
        reception.close()


def _apply(training: Training, frame: Frame) -> None:
    header, gradients = frame.header, training.gradients
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
