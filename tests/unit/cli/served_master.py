"""A served master with TLS and token as in a pod, whose status is set by the test."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from elasticdl.launcher.certificate_authority import CertificateAuthority
from elasticdl.launcher.kubernetes.job_secrets import JobSecrets
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.server import MasterServer
from elasticdl.spec import JobSpec
from elasticdl.tls import Role, TlsCredentials


class ServedMaster:
    def __init__(self, spec: JobSpec, secrets: JobSecrets, folder: Path, status: pb.JobStatus) -> None:
        self.status = status
        self.asked: list[Any] = []
        own = folder / "master.pem"
        self._identity = TlsCredentials(folder / "authority.pem", own, own, spec.name)
        authority, now = (
            CertificateAuthority.from_pem(secrets.authority_pem, secrets.authority_key_pem),
            datetime.datetime.now(datetime.UTC),
        )
        own.write_text(authority.issue(Role.MASTER, Role.MASTER, now, life_s=3600))
        self._identity.authority.write_text(secrets.authority_pem)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(self._make(spec, secrets.token))
        host, _, port = self._run(self._server.start()).rpartition(":")
        self.address = (host, int(port))

    def close(self) -> None:
        self._run(self._server.stop(0.0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _make(self, spec: JobSpec, token: str) -> MasterServer:
        return MasterServer(self, spec, token, run=1, identity=self._identity)

    async def enroll(self, request: pb.EnrollRequest) -> pb.EnrollReply:
        raise AssertionError("no worker in this test")

    async def session(self, messages: Any, link: Any) -> None:
        raise AssertionError("no worker in this test")

    async def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply:
        raise AssertionError("no worker in this test")

    async def watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.JobStatus]:
        yield self.status

    async def scale(self, request: pb.ScaleRequest) -> pb.Accepted:
        self.asked.append(request)
        return pb.Accepted(message=f"{request.workers} workers requested")

    async def stop(self, request: pb.StopRequest) -> pb.Accepted:
        self.asked.append(request)
        return pb.Accepted(message="")
