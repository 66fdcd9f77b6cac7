"""A line to one ps: a message there, its reply back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import zmq

from elasticdl.errors import AccessDenied, ElasticDLError, TransientError
from elasticdl.ps import wire
from elasticdl.ps.keys import Keys
from elasticdl.ps.server import send, token_digest
from elasticdl.ps.wire import Message, Status
from elasticdl.spec import PsId


class PsUnreachable(TransientError):
    """A ps does not answer."""


class PsRefused(ElasticDLError):
    """A ps refused what was sent: the message names table and cause."""


def check(name: PsId, reply: Message) -> None:
    """Raise what a reply says went wrong. *Moved* is for the caller to deal with."""
    match reply.status:
        case Status.DENIED:
            raise AccessDenied(f"{name} refused the token of this job")
        case Status.REFUSED:
            raise PsRefused(f"{name}: {reply.text.decode(errors='replace')}")


class Lines:
    """Sockets to any number of ps, for one thread."""

    def __init__(self, addresses: Mapping[PsId, str], token: str, timeout_s: float, keys: Keys | None = None) -> None:
        self._context = zmq.Context()
        self._keys = keys
        self._token = token_digest(token)
        self.timeout_s = timeout_s
        self._sockets: dict[PsId, zmq.Socket[bytes]] = {}
        self._poller = zmq.Poller()
        self._requests = count(1)
        for name, address in addresses.items():
            self.connect(name, address)

    @property
    def names(self) -> list[PsId]:
        return list(self._sockets)

    def connect(self, name: PsId, address: str) -> None:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        if self._keys:
            self._keys.show(socket)
        socket.connect(f"tcp://{address}")
        self._sockets[name] = socket
        self._poller.register(socket, zmq.POLLIN)

    def close(self) -> None:
        self._context.destroy(linger=0)

    def send(self, name: PsId, message: Message) -> int:
        """Send at once; its number, which the reply will have. The arrays must not be written to afterwards."""
        request = next(self._requests)
        send(self._sockets[name], wire.encode(message._replace(request=request, token=self._token)))
        return request

    def receive(self) -> list[Message]:
        """Replies that have come, at least one. Empty: none came in time."""
        found = []
        for socket, _ in self._poller.poll(round(self.timeout_s * 1000)):
            frames = socket.recv_multipart(copy=False)
            found.append(wire.decode([frame.buffer for frame in frames]))
        return found

    def ask_all(self, messages: Mapping[PsId, Message]) -> dict[PsId, Message]:
        """Send to each its message and wait for all replies, while nothing else is under way."""
        open_ = {self.send(name, message): name for name, message in messages.items()}
        found: dict[PsId, Message] = {}
        while open_:
            replies = self.receive()
            if not replies:
                raise PsUnreachable(f"{', '.join(open_.values())}: no answer within {self.timeout_s:g} s")
            for reply in replies:
                if name := open_.pop(reply.request, None):
                    check(name, reply)
                    found[name] = reply
        return found

    def ask(self, name: PsId, message: Message) -> Message:
        """Send one message and wait for its reply, while nothing else is under way."""
        return self.ask_all({name: message})[name]
