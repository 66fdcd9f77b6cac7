"""Constructors of the collective package only store their arguments; `start`, `open` and `register_hooks` act."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

import torch
from torch import nn

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.mesh import Mesh
from elasticdl.collective.peers import PeerCredentials, PeerListener
from elasticdl.collective.state_transfer import StateSender
from elasticdl.collective.tree import RankRange, ReductionTree
from tests.resources import acquires_nothing


def test_gradient_buffers_receive_no_gradient_before_their_hooks_are_registered() -> None:
    model = nn.Linear(2, 1)
    gradients = GradientBuffers(model.parameters(), ReductionTree(1), 0, ordered=True)
    gradients.start_update(RankRange(0, 1))

    gradients.backward(model(torch.ones(1, 2)).sum(), 0, 1.0)
    sum_without_hooks = gradients.flat(gradients.node_sums()[0]).clone()
    gradients.register_hooks().start_update(RankRange(0, 1))
    gradients.backward(model(torch.ones(1, 2)).sum(), 0, 1.0)

    assert not sum_without_hooks.any()
    assert gradients.flat(gradients.node_sums()[0]).any()


def test_a_mesh_and_a_listener_acquire_nothing_before_they_are_opened() -> None:
    with acquires_nothing():
        Mesh({})
        PeerListener("127.0.0.1", PeerCredentials("worker-0", "token"), {})


def test_a_sender_of_the_state_starts_no_thread_before_start() -> None:
    threads = set(threading.enumerate())
    donor_end, newcomer_end = socket.socketpair()

    with closing(newcomer_end):
        sender = StateSender("worker-1", donor_end, stall_s=1.0)
        assert set(threading.enumerate()) == threads
        sender.start().abort()
        sender.wait(10.0)

    assert sender.has_ended
