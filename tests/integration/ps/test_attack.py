"""A job whose ps are attacked ends with the same result and the same ps as an undisturbed one."""

from __future__ import annotations

import contextlib
import socket

import zmq

from elasticdl.ps.wire.authentication import connect_socket, token_digest
from elasticdl.ps.wire.messages import WireDtype
from tests import native
from tests.integration.job import Job, Jobs
from tests.integration.ps.test_server import huge
from tests.integration.test_ps_elastic import wait_shares
from tests.integration.test_ps_hybrid import assert_each_record_counts_once, start

native.require()


def attack(job: Job, address: str) -> None:
    """Attacks with no token, with a guessed token, and with the right token."""
    token = token_digest(job.directory.load_token())
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        plain = stack.enter_context(context.socket(zmq.DEALER))
        plain.linger = 0
        plain.connect(f"tcp://{address}")
        guess = stack.enter_context(connect_socket(context, address, token_digest("guess"), None))
        insider = stack.enter_context(connect_socket(context, address, token, None))
        for attacker, shown in (
            (plain, bytes(16)),
            (guess, token_digest("guess")),
            (insider, bytes(16)),
            (insider, token),
        ):
            for transport in WireDtype:
                for _ in range(4):  # more than a ps has threads
                    attacker.send_multipart(huge(transport, shown))
        for _ in range(2 * 3 * 4):
            assert insider.poll(60_000), "an answer"
            insider.recv_multipart()
        host, _, port = address.rpartition(":")
        for _ in range(200):
            stranger = stack.enter_context(socket.create_connection((host, int(port))))
            with contextlib.suppress(OSError):
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")


def test_a_job_survives_an_attack_on_its_ps(jobs: Jobs) -> None:
    job = start(jobs, "attacked", slow=True, pause_s=0.05)
    before = wait_shares(job, 2)
    job.wait_members(2, step=1)

    for ps in before.ps:
        attack(job, ps.address)
    step = job.wait(lambda status: status.step > 0, "a step").step
    after = job.wait(lambda status: status.step > step + 2, "training goes on")
    job.hurry()

    assert [ps.pid for ps in after.ps] == [ps.pid for ps in before.ps]
    assert_each_record_counts_once(job)
    assert not {"ps-lost", "worker-lost"} & set(job.kinds())
    job.wait_gone()
