"""Workers and ps over real sockets: rows are pulled and pushed, and invalid requests are refused by name."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import zmq

from elasticdl.errors import AccessDenied
from elasticdl.ps.wire import messages
from elasticdl.ps.wire.authentication import connect_socket, token_digest
from elasticdl.ps.wire.connections import PsConnections, PsRefused, PsUnreachable
from elasticdl.ps.wire.messages import MessageKind, PsMessage, ReplyStatus, WireDtype
from elasticdl.spec import PsId
from tests.integration.ps.cluster import TABLES, TOKEN, pull, push
from tests.integration.ps.conftest import Start
from tests.waiting import until


@pytest.mark.parametrize("count", [1, 3])
def test_gradients_pushed_by_one_worker_are_in_the_rows_that_another_pulls(start: Start, count: int) -> None:
    cluster = start(count)
    writer, reader = cluster.client(), cluster.client()
    writer.declare(TABLES)
    reader.declare(TABLES[::-1])
    ids = np.array([5, -7, 5, 2**62, 5, -7], np.int64)
    plans = {"users": writer.plan(ids), "items": writer.plan(np.arange(3000))}
    before = pull(writer, plans)
    assert (before["users"] == 1.0).all()

    sums = {
        "users": plans["users"].sum_gradients(np.ones((6, 4), np.float32)),
        "items": np.zeros((3000, 2), np.float32),
    }
    writer.finish_push(writer.begin_push(plans, sums, sender=1, number=1, rate=0.5, step=1))

    plan = reader.plan(ids)
    rows = pull(reader, {"users": plan})["users"][plan.inverse]
    assert rows.tolist() == [[1 - 0.5 * np.count_nonzero(ids == row_id)] * 4 for row_id in ids]
    again = pull(reader, {"items": plans["items"]})["items"]
    assert (again == before["items"]).all(), "a gradient of zero changes nothing"


def test_ids_are_spread_over_all_ps(start: Start) -> None:
    cluster = start(3)
    client = cluster.client()
    client.declare(TABLES)
    pull(client, {"users": client.plan(np.arange(30_000))})

    rows = [held.status()["tables"]["users"]["rows"] for held in cluster.holdings.values()]
    assert sum(rows) == 30_000
    assert max(rows) < 1.1 * min(rows)


def test_gradients_that_are_not_finite_or_have_another_shape_are_refused_with_the_name_of_the_table(
    start: Start,
) -> None:
    client = start(1).client()
    client.declare(TABLES)
    plan = client.plan(np.array([4, 8], np.int64))
    bad = np.ones((2, 4), np.float32)
    bad[plan.ids.tolist().index(8), 2] = np.nan
    with pytest.raises(
        PsRefused, match=r"ps-0: table users: the gradient of id 8 is not finite: \[1.0, 1.0, nan, 1.0\]"
    ):
        push(client, {"users": plan}, {"users": bad})
    with pytest.raises(PsRefused, match=r"table users: expected gradients of shape \(2, 4\). Received: \(2, 3\)"):
        push(client, {"users": plan}, {"users": np.ones((2, 3), np.float32)})
    assert (pull(client, {"users": plan})["users"] == 1.0).all()


def test_a_push_that_one_ps_refuses_does_not_lose_the_replies_of_the_others(start: Start) -> None:
    client = start(3).client()
    client.declare(TABLES)
    plan = client.plan(np.arange(300))
    bad, good = np.full((300, 4), np.nan, np.float32), np.ones((300, 4), np.float32)
    refused = client.begin_push({"users": plan}, {"users": bad}, sender=1, number=1, rate=1.0, step=1)
    taken = client.begin_push({"users": plan}, {"users": good}, sender=2, number=1, rate=1.0, step=1)
    refusals = 0
    for pushed in (taken, refused):
        while pushed.open_count:
            try:
                client.finish_push(pushed)
            except PsRefused:
                refusals += 1

    assert refusals == 3, "each of the three says so, once"
    assert (pull(client, {"users": plan})["users"] == 0.0).all()


def test_a_table_that_is_declared_differently_is_refused(start: Start) -> None:
    cluster = start(1)
    cluster.client().declare(TABLES)
    with pytest.raises(PsRefused, match=r"table users: expected columns 4 \(not 5\)"):
        cluster.client().declare([TABLES[0].model_copy(update={"columns": 5})])


def test_a_wrong_token_is_denied_and_counted(start: Start) -> None:
    cluster = start(1)
    with pytest.raises(AccessDenied, match="ps-0 refused the token"):
        cluster.client(token="guess").declare(TABLES)
    until("it is counted", lambda: cluster.servers[PsId("ps-0")].denied_count >= 1)


@contextlib.contextmanager
def raw_socket(address: str, token: str = TOKEN) -> Iterator[zmq.Socket[bytes]]:
    """Opens a socket that has the token and can send arbitrary frames."""
    with zmq.Context() as context, connect_socket(context, address, token_digest(token), None) as socket:
        yield socket


def test_invalid_frames_are_counted_and_do_not_disturb_others(start: Start) -> None:
    cluster = start(1)
    server = cluster.servers[PsId("ps-0")]
    with raw_socket(server.address) as socket:
        for frames in ([b""], [b"x"], [b"", b"", b"y" * 100], [b"EDP2" * 17, b"", b""]):
            socket.send_multipart(frames)
            assert socket.poll(30_000), "an answer"
            assert messages.decode_message(socket.recv_multipart()).status is ReplyStatus.REFUSED

    assert server.malformed_messages == 4
    cluster.client().declare(TABLES)


def huge(transport: WireDtype, token: bytes = token_digest(TOKEN)) -> list[bytes]:
    """A push of 120 bytes that says it has 16 PiB of rows."""
    header, text = (bytes(frame) for frame in messages.encode_message(PsMessage(MessageKind.PUSH, 5, token=token)))
    part = struct.pack("<HBxIIIQ", 0, transport, 0, 2**32 - 1, 2**20, 0)
    return [header[:6] + b"\1\0" + header[8:], text, part, b"four"]


@pytest.mark.parametrize("transport", WireDtype)
def test_a_message_with_missing_rows_is_refused_by_every_thread(start: Start, transport: WireDtype) -> None:
    cluster = start(1)
    with raw_socket(cluster.servers[PsId("ps-0")].address) as socket:
        for _ in range(8):  # more than there are threads
            socket.send_multipart(huge(transport))
        for _ in range(8):
            assert socket.poll(30_000), "an answer"
            reply = messages.decode_message(socket.recv_multipart())
            assert (reply.status, reply.request) == (ReplyStatus.REFUSED, 5)

    cluster.client().declare(TABLES)


def test_nothing_of_a_message_without_the_token_is_parsed(start: Start) -> None:
    cluster = start(1)
    server = cluster.servers[PsId("ps-0")]
    with raw_socket(server.address) as socket:
        socket.send_multipart(huge(WireDtype.FLOAT16, token=bytes(16)))
        assert socket.poll(30_000), "an answer"
        assert messages.decode_message(socket.recv_multipart()).status is ReplyStatus.DENIED

    assert (server.denied_count, server.malformed_messages) == (1, 0)


def test_an_internal_error_during_a_request_is_reported_and_ends_no_thread(start: Start) -> None:
    cluster = start(1)

    def fail(message: PsMessage) -> PsMessage:
        raise RuntimeError("of ours")

    cluster.restart(PsId("ps-0"), threads=1, answers={MessageKind.SNAPSHOT: fail})
    with PsConnections(cluster.addresses, TOKEN, 30.0) as connections:
        for _ in range(3):
            with pytest.raises(PsRefused, match="of ours"):
                connections.request(PsId("ps-0"), PsMessage(MessageKind.SNAPSHOT, 0))
        assert connections.request(PsId("ps-0"), PsMessage(MessageKind.STATUS, 0)).status is ReplyStatus.OK


def test_an_idle_ps_serves_no_request(start: Start) -> None:
    """A thread that waits for requests must not look like one that hangs in one: its ps would be replaced."""
    cluster = start(1)
    client = cluster.client()
    client.declare(TABLES)
    (server,) = cluster.servers.values()
    pause = threading.Event()
    ages_s = []
    for _ in range(10):
        pause.wait(0.03)
        ages_s.append(server.busy_timer.sample_busy_s())
    assert ages_s[-1] == 0.0


def test_text_that_cannot_be_decoded_is_refused(start: Start) -> None:
    cluster = start(1)
    with PsConnections(cluster.addresses, TOKEN, 30.0) as connections:
        for kind in (MessageKind.DECLARE, MessageKind.OPEN_MEMORY, MessageKind.TAKE_OVER):
            for text in (b"[" * 100_000, b"\xff", b"[1]", b'{"owner": 1}', b"[[]]"):
                with pytest.raises(PsRefused):
                    connections.request(PsId("ps-0"), PsMessage(kind, 0, text=text))
        assert connections.request(PsId("ps-0"), PsMessage(MessageKind.STATUS, 0)).status is ReplyStatus.OK


def test_a_ps_that_does_not_respond_is_named(start: Start) -> None:
    cluster = start(2)
    client = cluster.client(timeout_s=0.3)
    client.declare(TABLES)
    cluster.servers.pop(PsId("ps-1")).close()
    with pytest.raises(PsUnreachable, match=r"ps-1: no answer within 0\.3 s"):
        pull(client, {"users": client.plan(np.arange(100))})
