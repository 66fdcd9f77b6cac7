"""Access to a job: TLS with its own certificates, the job's token, private files, loopback only."""

from __future__ import annotations

import datetime
import ipaddress
import json
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from elasticdl.errors import AccessDenied, MasterUnreachable
from elasticdl.launcher.certificate_manager import CertificateManager
from elasticdl.launcher.local import job_directory
from elasticdl.ps.wire.keys import CurveKeys, find_keys
from elasticdl.rpc import channel as channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import methods, security
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import PsId, SecuritySpec
from elasticdl.spec.directory import JobDirectory, read_json, write_private_file
from tests import native
from tests.integration.job import PATIENCE_S, Job, Jobs
from tests.waiting import until

YEAR = datetime.timedelta(days=365)


@dataclass(frozen=True)
class Authority:
    """Signs certificates for this machine's loopback address."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        built = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(key, built.sign(key, hashes.SHA256()))

    def issue(self, folder: Path) -> SecuritySpec:
        """Certificate, key and authority as files in `folder`."""
        folder.mkdir()
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = _builder("elasticdl", str(issuer), key).add_extension(loopback, critical=False)
        paths = SecuritySpec(certificate=f"{folder}/cert.pem", key=f"{folder}/key.pem", ca=f"{folder}/ca.pem")
        Path(paths.certificate).write_bytes(_pem(signed.sign(self.key, hashes.SHA256())))
        Path(paths.ca).write_bytes(_pem(self.certificate))
        write_private_file(Path(paths.key), _key_pem(key))
        return paths


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    named = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (subject, issuer)]
    builder = x509.CertificateBuilder().subject_name(named[0]).issuer_name(named[1]).public_key(key.public_key())
    number = x509.random_serial_number()
    return builder.serial_number(number).not_valid_before(now - YEAR).not_valid_after(now + YEAR)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded.decode()


def options(security: SecuritySpec) -> list[str]:
    return [f"--tls_cert={security.certificate}", f"--tls_key={security.key}", f"--tls_ca={security.ca}"]


def copy_with_security(
    directory: JobDirectory, copy: Path, *, security: SecuritySpec | None, token: str
) -> JobDirectory:
    """Copies the job directory with other certificates or another token."""
    copy.mkdir()
    spec = directory.load_spec()
    if security is not None:
        spec = spec.model_copy(update={"security": security})
    stranger = replace(directory, root=copy)
    write_private_file(stranger.spec, spec.model_dump_json())
    write_private_file(stranger.token, token)
    write_private_file(stranger.master, directory.master.read_text())
    return stranger


def ask(directory: JobDirectory) -> str:
    with MasterClient.connect(directory, timeout_s=3.0) as client:
        return client.status().phase


def listening(job: Job) -> dict[str, set[str]]:
    """Addresses on which each process of the job waits for others; grpc writes an IPv4 address as one of IPv6."""
    return {
        name: {
            c.laddr.ip.removeprefix("::ffff:")
            for c in psutil.Process(pid).net_connections("inet")
            if c.status == psutil.CONN_LISTEN
        }
        for name, pid in job.living().items()
    }


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_job_with_certificates_trains_and_refuses_other_clients(jobs: Jobs, tmp_path: Path) -> None:
    ours = Authority.make("ours").issue(tmp_path / "ours")
    theirs = Authority.make("theirs").issue(tmp_path / "theirs")
    job = jobs.train("tls", 2, *options(ours), slow=True)
    job.wait_members(2, step=1)
    token = job.directory.load_token()

    assert ask(copy_with_security(job.directory, tmp_path / "ourselves", security=ours, token=token)) == "running"
    with pytest.raises(AccessDenied, match="refused the token"):
        ask(copy_with_security(job.directory, tmp_path / "no-token", security=ours, token=""))
    with pytest.raises(AccessDenied, match="refused the token"):
        ask(copy_with_security(job.directory, tmp_path / "other-token", security=ours, token=token[::-1]))
    with pytest.raises(AccessDenied, match="--tls_ca"):
        ask(copy_with_security(job.directory, tmp_path / "other-authority", security=theirs, token=token))
    with pytest.raises(MasterUnreachable):
        ask(copy_with_security(job.directory, tmp_path / "no-tls", security=SecuritySpec(), token=token))

    job.kill_master()
    job.wait_event("master-restarted")
    job.hurry()
    assert job.result()["phase"] == "succeeded"


def test_a_local_job_listens_on_loopback_only_and_its_files_are_private(jobs: Jobs) -> None:
    job = jobs.train("private", 2, slow=True)
    job.wait_members(2, step=1)

    addresses = listening(job)
    assert set(addresses) == {"launcher", "master", "worker-0", "worker-1"}
    assert addresses["launcher"] == set()
    assert [addresses[name] for name in ("master", "worker-0", "worker-1")] == [{"127.0.0.1"}] * 3
    assert mode(job.directory.root) == 0o700
    assert {mode(path) for path in (job.directory.token, job.directory.spec, job.directory.journal)} == {0o600}
    assert {mode(path) for path in (job.directory.master, job.directory.launcher)} == {0o600}


def test_without_the_token_nothing_is_answered_and_nothing_changes(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.train("token", 1, slow=True)
    job.wait_members(1, step=1)
    stranger = copy_with_security(job.directory, tmp_path / "stranger", security=None, token="guessed")

    with MasterClient.connect(stranger, timeout_s=3.0) as client:
        with pytest.raises(AccessDenied):
            client.status()
        with pytest.raises(AccessDenied):
            client.scale(3)
        with pytest.raises(AccessDenied):
            client.stop(at_once=True, reason="a stranger says so")

    status = job.status()
    assert status is not None
    assert (status.phase, status.desired_workers) == ("running", 1)


@pytest.mark.slow
def test_random_bytes_on_the_masters_port_do_not_disturb_the_job(jobs: Jobs) -> None:
    job = jobs.train("noise", 1, slow=True)
    job.wait_members(1, step=1)
    announced = read_json(job.directory.master)
    assert announced is not None
    host, _, port = str(announced["address"]).partition(":")

    for noise in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 64, b""):
        with socket.create_connection((host, int(port)), timeout=5) as stranger:
            stranger.sendall(noise)

    job.hurry()
    result = job.result()
    assert (result["phase"], result["master_restarts"]) == ("succeeded", 0)


@pytest.mark.parametrize(
    ("broken", "expected"),
    [("certificate", "--tls_cert, --tls_key"), ("key", "--tls_cert, --tls_key"), ("ca", "--tls_ca")],
)
def test_an_invalid_certificate_is_refused_before_the_launch(tmp_path: Path, broken: str, expected: str) -> None:
    security = Authority.make("ours").issue(tmp_path / "ours")
    Path(getattr(security, broken)).write_text("no certificate at all")
    script = tmp_path / "train.py"
    script.write_text("from elasticdl.torch import join\njoin()\n")

    done = Job(tmp_path / "home", "wrong").invoke("run", *options(security), str(script))

    assert done.returncode == 2
    assert expected in done.stderr
    assert not list((tmp_path / "home" / "jobs").iterdir())


def test_a_key_of_another_certificate_is_refused_before_the_launch(tmp_path: Path) -> None:
    authority = Authority.make("ours")
    mixed = authority.issue(tmp_path / "one").model_copy(update={"key": authority.issue(tmp_path / "two").key})
    script = tmp_path / "train.py"
    script.write_text("from elasticdl.torch import join\njoin()\n")

    done = Job(tmp_path / "home", "wrong").invoke("run", *options(mixed), str(script))

    assert (done.returncode, "key" in done.stderr) == (2, True)


def test_ps_of_a_job_with_certificates_only_accept_clients_with_its_keys(jobs: Jobs, tmp_path: Path) -> None:
    native.require()
    from elasticdl.ps.wire.connections import PsConnections, PsUnreachable
    from elasticdl.ps.wire.messages import MessageKind, PsMessage

    ours = Authority.make("ours").issue(tmp_path / "ours")
    job = jobs.train("curve", 1, "--num_ps_pods=1", *options(ours), slow=True)
    job.wait_members(1, step=1)
    keys = job.directory.root / "ps-keys.json"
    done = job.command("scale", job.name, "--ps", "2")
    assert done.returncode == 0, done.stderr
    job.wait_event("slots-moved")
    status = job.wait(lambda s: [ps.slots for ps in s.ps] == [512, 512], "both hold slots")

    assert mode(keys) == 0o600
    for client_keys, is_answered in (
        (find_keys(job.directory.root), True),
        (None, False),
        (CurveKeys.generate(), False),
    ):
        lines = PsConnections({PsId("ps-0"): status.ps[0].address}, job.directory.load_token(), 1.0, client_keys).open()
        try:
            lines.request(PsId("ps-0"), PsMessage(MessageKind.STATUS, 0))
        except PsUnreachable:
            assert not is_answered
        else:
            assert is_answered
        finally:
            lines.close()
    job.stop()
    job.wait_gone()


def copy_with_certificates(directory: JobDirectory, copy: Path, name: str, certificates: Path) -> JobDirectory:
    """Copies the job directory with these certificates, that of `name` as the client's."""
    copied = copy_with_security(directory, copy, security=None, token=directory.load_token())
    shutil.copytree(certificates, copied.certificates)
    if name != "client":
        (copied.certificates / f"{name}.pem").replace(copied.certificates / "client.pem")
    return copied


def test_with_tls_alone_each_replica_has_a_role_and_cannot_act_for_another(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.train("roles", 2, "--tls", slow=True)
    job.wait_members(2, step=1)
    own = job.directory.certificates
    assert ask(copy_with_certificates(job.directory, tmp_path / "client", "client", own)) == "running"

    for name in ("worker-0", "master"):
        with pytest.raises(AccessDenied, match=f"of a client of job roles; received .*/{name}"):
            ask(copy_with_certificates(job.directory, tmp_path / name, name, own))
    worker = copy_with_certificates(job.directory, tmp_path / "stops", "worker-0", own)
    with MasterClient.connect(worker, timeout_s=3.0) as client, pytest.raises(AccessDenied, match="of a client"):
        client.stop(at_once=True, reason="a worker says so")
    for name, claimed in (("client", "worker-0"), ("worker-1", "worker-0"), ("worker-1", "ps-0")):
        refused = open_session(
            copy_with_certificates(job.directory, tmp_path / f"{name}-as-{claimed}", name, own), claimed
        )
        assert "PERMISSION_DENIED" in refused, refused
    job.kill_master()
    job.wait_event("master-restarted")
    job.hurry()
    assert job.result()["phase"] == "succeeded"
    job.wait_gone()
    assert not (own / "authority.key").exists()


def open_session(directory: JobDirectory, name: str) -> str:
    """Opens a stream to the master as `name` with the certificate of "client" and returns its error."""
    address = channels.master_address(directory)
    channel = channels.open_channel(address, directory.tls_credentials(directory.load_spec(), "client"))
    hello = pb.WorkerMessage(hello=pb.Hello(replica=name, pid=1))
    metadata = security.call_metadata(directory.load_token(), run=1)
    stream = methods.SESSION.bind(channel)(iter([hello]), metadata=metadata, timeout=9)
    try:
        return f"received {list(stream)}"
    except grpc.RpcError as exc:
        return str(exc)
    finally:
        channel.close()


@pytest.mark.slow
def test_another_job_of_the_same_name_is_refused_and_so_is_a_worker_that_poses_as_the_master(
    jobs: Jobs, tmp_path: Path
) -> None:
    job = jobs.train("mine", 1, "--tls", slow=True)
    job.wait_members(1, step=1)
    theirs = JobDirectory(tmp_path / "theirs")
    job_directory.create_job_directory(theirs, job.directory.load_spec())
    CertificateManager.open(theirs).issue("client", time.time())

    with pytest.raises(AccessDenied, match="certificates"):
        ask(copy_with_certificates(job.directory, tmp_path / "stranger", "client", theirs.certificates))
    usurped = copy_with_certificates(job.directory, tmp_path / "usurped", "client", job.directory.certificates)
    (usurped.certificates / "worker-0.pem").replace(usurped.certificates / "master.pem")
    with serving(usurped), pytest.raises(AccessDenied, match="certificates"):
        ask(usurped)


@contextmanager
def serving(directory: JobDirectory) -> Iterator[None]:
    """A server with what the directory has as a master's certificate, announced as the job's master."""
    identity = directory.tls_credentials(directory.load_spec(), "master")
    server = grpc.server(ThreadPoolExecutor(1))
    credentials = security.server_credentials(identity)
    assert credentials is not None
    port = server.add_secure_port("127.0.0.1:0", credentials)
    write_private_file(directory.master, json.dumps({"address": f"127.0.0.1:{port}"}))
    server.start()
    try:
        yield
    finally:
        server.stop(0)


def test_certificates_are_replaced_while_the_job_runs_without_any_effect(jobs: Jobs) -> None:
    job = jobs.train("rotated", 1, "--tls", "--tls_lifetime_s=6", "--num_ps_pods=1", slow=True, pause_s=0.5)
    job.wait_members(1, step=1)
    first = {path.name: path.read_text() for path in job.directory.certificates.glob("*-0.pem")}
    assert set(first) == {"worker-0.pem", "ps-0.pem"}
    ends = [not_after(text) for text in first.values()]

    until("the first certificates have expired", lambda: time.time() > max(ends) + 0.5, PATIENCE_S)
    done = job.command("scale", job.name, "--workers", "2")
    assert done.returncode == 0, done.stderr
    job.wait_members(2)

    now = {path.name: path.read_text() for path in job.directory.certificates.glob("*-0.pem")}
    assert all(now[name] != text for name, text in first.items())
    job.kill_master()
    job.wait_event("master-restarted")
    job.hurry()
    result = job.result()
    assert (result["phase"], result["master_restarts"]) == ("succeeded", 1)
    assert not [event for event in job.events() if event["kind"] == "worker-lost"]


def not_after(pem: str) -> float:
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp()
