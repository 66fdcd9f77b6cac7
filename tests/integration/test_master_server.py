"""The gRPC server of a master that ends by itself is noticed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from elasticdl.rpc.server import MasterServer, MasterService
from elasticdl.spec import JobSpec, ModelSpec


def test_a_server_that_nobody_stopped_and_that_serves_no_more_is_an_error() -> None:
    async def serve() -> None:
        service = cast("MasterService", _Service())
        server = MasterServer(service, JobSpec(name="job", model=ModelSpec(definition="a.b")), "token", 1, None)
        await server.start()
        waiting = asyncio.create_task(server.wait_failed())
        await asyncio.sleep(0)
        assert not waiting.done()
        await server.stop(0.0)  # as if grpc had done so
        await waiting

    with pytest.raises(RuntimeError, match="ended by itself"):
        asyncio.run(serve())


class _Service:
    def __getattr__(self, name: str) -> Any:
        async def answer(*_: Any) -> None:
            raise AssertionError(name)

        return answer
