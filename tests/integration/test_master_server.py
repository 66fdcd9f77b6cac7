"""The gRPC server of a master that ends by itself is noticed."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, cast

import pytest

from elasticdl.errors import SpecError, is_machine_error
from elasticdl.rpc.server import MasterServer, MasterService, bind_error
from elasticdl.spec import JobSpec, ModelSpec, SecuritySpec, WorkersSpec


def test_a_server_that_ends_without_being_stopped_is_an_error() -> None:
    async def serve() -> None:
        service = cast("MasterService", _Service())
        server = MasterServer(service, JobSpec(name="job", model=ModelSpec(definition="a.b")), "token", 1, None)
        await server.start()
        waiting = asyncio.create_task(server.wait_for_failure())
        await asyncio.sleep(0)
        assert not waiting.done()
        await server.stop(0.0)  # as if grpc had done so
        await waiting

    with pytest.raises(RuntimeError, match="ended by itself"):
        asyncio.run(serve())


def test_an_address_of_another_machine_makes_the_job_invalid() -> None:
    with pytest.raises(
        SpecError, match=r"workers\.address: expected an address of this machine .* '192\.0\.2\.7' \(Cannot"
    ):
        asyncio.run(_start("192.0.2.7"))


def test_a_lack_of_descriptors_does_not_make_the_job_invalid() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        problem = bind_error("127.0.0.1", RuntimeError("grpc does not say"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert is_machine_error(problem)
    assert not isinstance(bind_error("127.0.0.1", RuntimeError("it is over")), SpecError), "a moment later there is one"


async def _start(address: str) -> None:
    spec = JobSpec(
        name="job",
        model=ModelSpec(definition="a.b"),
        workers=WorkersSpec(address=address),
        security=SecuritySpec(insecure=True),
    )
    server = MasterServer(cast("MasterService", _Service()), spec, "token", 1, None)
    await server.start()
    await server.stop(0.0)


class _Service:
    def __getattr__(self, name: str) -> Any:
        async def answer(*_: Any) -> None:
            raise AssertionError(name)

        return answer
