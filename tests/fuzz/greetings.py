"""The greeting that a worker receives on a new connection: it can be encoded again, or is the one declared error."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.collective.peers import ConnectionPurpose, Greeting

MEMORY_BYTES = 1 << 20


def fuzz_one(data: bytes) -> None:
    try:
        greeting = Greeting.decode(data)
    except ConnectionError:
        return
    assert Greeting.decode(greeting.encode()) == greeting


def seeds() -> Iterator[bytes]:
    yield Greeting("worker-3", ConnectionPurpose.STATE, run=1).encode()
    yield Greeting("worker-0", ConnectionPurpose.ROUND, run=2, round=17, rank=3).encode()
    yield b'{"worker": "w", "purpose": "round", "run": 1e3, "round": true, "rank": -1}'
