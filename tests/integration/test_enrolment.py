"""Replicas of a job of pods get certificates from a real master's server, each only its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from cryptography import x509

from elasticdl.clock import WallClock
from elasticdl.errors import AccessDenied, MasterUnreachable, RunSuperseded, SpecError
from elasticdl.launcher.certificate_authority import SigningRequest, expires_at
from elasticdl.launcher.certificate_manager import read_authority
from elasticdl.launcher.kubernetes import job_secrets, pod
from elasticdl.master.runtime.service import MasterServicer
from elasticdl.rpc import channel as channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import methods, security
from elasticdl.rpc.client import MasterClient
from elasticdl.rpc.server import MasterServer
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory, write_private_file
from elasticdl.spec.env import PodEnv
from tests.manual_clock import ManualClock
from tests.unit.launcher.jobs import SMALL, job
from tests.unit.launcher.kubernetes.test_pod import mount
from tests.unit.master.driver import Driver, job_spec

RUN = 7
DAY_S = 86400.0
SOON_S = 3.0


@dataclass(frozen=True)
class Job:
    """One whose master has launched worker-0, worker-1 and ps-0."""

    secrets: job_secrets.JobSecrets
    driver: Driver
    address: str
    clock: ManualClock
    folder: Path

    def directory(self, role: str, replica: str) -> JobDirectory:
        """The job directory in the pod of a replica that has not enrolled yet."""
        folder = self.folder / replica
        folder.mkdir()
        env = PodEnv("127.0.0.1", f"digits-{replica}", "default", replica, RUN)
        directory = pod.prepare_job_directory(role, env, mount(folder, role, self.secrets))
        write_private_file(directory.master, json.dumps({"address": self.address}))
        return directory


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Job]:
    secrets, driver = job_secrets.create_secrets(job(SMALL)), Driver(job_spec(ps=1))
    env = PodEnv("127.0.0.1", "digits-master-0", "default", "master")
    (tmp_path / "master").mkdir()
    directory = pod.prepare_job_directory("master", env, mount(tmp_path / "master", "master", secrets))
    pod.start_certificate_renewal("master", env, directory)
    clock = ManualClock(WallClock().now())
    with serving(directory, driver, clock) as address:
        yield Job(secrets, driver, address, clock, tmp_path)


class serving:  # a context  # noqa: N801
    """The server of a master in a thread of its own."""

    def __init__(self, directory: JobDirectory, driver: Driver, clock: ManualClock) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._make = lambda: self._server_of(directory, driver, clock)

    def __enter__(self) -> str:
        self._thread.start()
        self._server: MasterServer = self._run(self._make())
        return str(self._run(self._server.start()))

    def __exit__(self, *_: object) -> None:
        self._run(self._server.stop(0.0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    async def _server_of(self, directory: JobDirectory, driver: Driver, clock: ManualClock) -> MasterServer:
        spec = directory.load_spec()
        service = MasterServicer(cast(Any, SimpleNamespace(machine=driver.machine)), read_authority(directory), clock)
        local = spec.model_copy(update={"workers": spec.workers.model_copy(update={"address": "127.0.0.1"})})
        return MasterServer(service, local, directory.load_token(), RUN, directory.tls_credentials(spec, "master"))

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)


def uris(pem: str) -> list[str]:
    certificate = x509.load_pem_x509_certificate(pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def ask(directory: JobDirectory, shown: str, replica: str, run: int = RUN, csr: bytes | None = None) -> str:
    """Enroll under a name with one of the certificates of a pod."""
    with MasterClient.connect(directory, SOON_S, run, shown) as master:
        return master.enroll(replica, SigningRequest.create("anybody").csr if csr is None else csr)


def enrolled(running: Job, replica: str, now: float | None = None) -> tuple[JobDirectory, JobSpec]:
    role = replica.partition("-")[0]
    directory = running.directory(role, replica)
    spec = directory.load_spec()
    pod.enrolling_manager(directory, spec, RUN).issue(replica, running.clock.now() if now is None else now)
    return directory, spec


@pytest.mark.parametrize("replica", ["worker-0", "worker-1", "ps-0"])
def test_a_replica_gets_a_certificate_for_its_name_with_the_lifetime_of_the_job_spec(
    running: Job, replica: str
) -> None:
    directory, spec = enrolled(running, replica)

    own = directory.certificates / f"{replica}.pem"
    assert uris(own.read_text()) == [f"elasticdl://digits/{replica.partition('-')[0]}/{replica}"]
    assert abs(expires_at(own.read_bytes()) - running.clock.now() - DAY_S) < 1.0
    assert own.stat().st_mode & 0o077 == 0
    identity = directory.tls_credentials(spec, replica)
    assert identity is not None and identity.server_context()


@pytest.mark.parametrize("name", ["worker-2", "ps-0", "worker", "ps", "master", "client", ""])
def test_the_certificate_of_a_role_enrolls_launched_replicas_of_that_role(running: Job, name: str) -> None:
    directory = running.directory("worker", "worker-0")

    with pytest.raises(AccessDenied, match=r"its own name only|has launched"):
        ask(directory, "worker", name)


@pytest.mark.parametrize("name", ["worker-1", "ps-0", "worker", "master"])
def test_a_replica_gets_no_other_name_than_its_own(running: Job, name: str) -> None:
    directory, _ = enrolled(running, "worker-0")

    with pytest.raises(AccessDenied, match="its own name only"):
        ask(directory, "worker-0", name)


def test_a_replica_that_is_gone_gets_no_certificate(running: Job) -> None:
    directory, _ = enrolled(running, "worker-0")
    running.driver.exit("worker-0", code=1)

    for shown in ("worker-0", "worker"):
        with pytest.raises(AccessDenied, match="launched and that has not ended"):
            ask(directory, shown, "worker-0")


def test_another_run_a_missing_token_or_a_bad_request_is_not_enrolled(running: Job) -> None:
    directory = running.directory("worker", "worker-0")

    with pytest.raises(RunSuperseded):
        ask(directory, "worker", "worker-0", run=RUN - 1)
    with pytest.raises(SpecError, match="csr: expected a certificate signing request"):
        ask(directory, "worker", "worker-0", csr=bytes(5000))
    write_private_file(directory.token, "guessed")
    with pytest.raises(AccessDenied, match="refused the token"):
        ask(directory, "worker", "worker-0")


def test_the_certificate_of_a_role_grants_nothing_but_enrolment(running: Job) -> None:
    directory = running.directory("worker", "worker-0")

    with MasterClient.connect(directory, SOON_S, RUN, "worker") as master:
        with pytest.raises(AccessDenied, match="only for enrolment"):
            master.exchange(pb.ExchangeRequest(worker="worker-0"))
        with pytest.raises(AccessDenied, match="only for enrolment"):
            master.finish_training("a worker says so")
    for name in ("worker-0", "worker"):
        assert "only for enrolment" in open_session(directory, "worker", name)


def open_session(directory: JobDirectory, shown: str, name: str) -> str:
    """Opens a session as `name` and returns how it ends."""
    channel = channels.open_channel(
        channels.master_address(directory), directory.tls_credentials(directory.load_spec(), shown)
    )
    hello = iter([pb.WorkerMessage(hello=pb.Hello(replica=name, pid=1))])
    metadata = security.call_metadata(directory.load_token(), RUN)
    try:
        return f"received {list(methods.SESSION.bind(channel)(hello, metadata=metadata, timeout=9))}"
    except grpc.RpcError as exc:
        return str(exc)
    finally:
        channel.close()


def test_a_certificate_is_renewed_with_itself_at_half_of_its_lifetime(running: Job) -> None:
    directory, spec = enrolled(running, "worker-0")
    own, now = directory.certificates / "worker-0.pem", running.clock.now()
    issuer = pod.enrolling_manager(directory, spec, RUN)
    issuer.issue("worker-0", now)
    first = own.read_text()
    (directory.certificates / "worker.pem").unlink()  # of its role: not needed any more

    issuer.renew_due(now + 0.49 * DAY_S)
    assert own.read_text() == first
    running.clock.advance(0.5 * DAY_S)
    issuer.renew_due(running.clock.now())

    assert own.read_text() != first
    assert abs(expires_at(own.read_bytes()) - now - 1.5 * DAY_S) < 1.0


def test_an_expired_certificate_is_renewed_with_that_of_the_role(running: Job) -> None:
    now = running.clock.now()
    running.clock.advance(-2 * DAY_S)
    directory, spec = enrolled(running, "worker-0")
    running.clock.advance(2 * DAY_S)
    assert not pod.has_valid_certificate(directory, "worker-0", now)
    with pytest.raises((AccessDenied, MasterUnreachable)):
        ask(directory, "worker-0", "worker-0")

    pod.enrolling_manager(directory, spec, RUN).issue("worker-0", now)

    assert pod.has_valid_certificate(directory, "worker-0", now)
    assert uris(ask(directory, "worker-0", "worker-0")) == ["elasticdl://digits/worker/worker-0"]


def test_a_replica_whose_clock_is_behind_enrolls_with_the_certificate_of_its_role_when_its_own_is_refused(
    running: Job,
) -> None:
    now = running.clock.now()
    running.clock.advance(-2 * DAY_S)
    directory, spec = enrolled(running, "worker-0")
    running.clock.advance(2 * DAY_S)
    spec = spec.model_copy(update={"timing": spec.timing.model_copy(update={"rpc_timeout_s": 1.0})})

    pod.enrolling_manager(directory, spec, RUN).issue("worker-0", now - 1.5 * DAY_S)

    assert pod.has_valid_certificate(directory, "worker-0", now)


def test_a_pod_waits_for_an_unreachable_master(running: Job) -> None:
    directory = running.directory("worker", "worker-0")
    directory.master.unlink()
    spec = directory.load_spec()
    hasty = spec.model_copy(update={"timing": spec.timing.model_copy(update={"orphan_timeout_s": 0.2})})
    with pytest.raises(MasterUnreachable):
        pod.enrolling_manager(directory, hasty, RUN).issue("worker-0", running.clock.now())
    assert not (directory.certificates / "worker-0.pem").exists()

    waiting = threading.Thread(target=lambda: pod.enrolling_manager(directory, spec, RUN).issue("worker-0", 0.0))
    waiting.start()
    write_private_file(directory.master, json.dumps({"address": running.address}))
    waiting.join(20)

    assert uris((directory.certificates / "worker-0.pem").read_text()) == ["elasticdl://digits/worker/worker-0"]


def test_a_master_without_the_certificate_authority_refers_to_the_launcher() -> None:
    service = MasterServicer(cast(Any, SimpleNamespace(machine=Driver(job_spec()).machine)))

    with pytest.raises(SpecError, match="from its launcher"):
        asyncio.run(service.enroll(pb.EnrollRequest(replica="worker-0")))
