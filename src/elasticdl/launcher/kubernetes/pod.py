"""`python -m elasticdl.launcher.kubernetes.pod master|worker|ps`: the command of a pod."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elasticdl import signals
from elasticdl.clock import Clock, WallClock
from elasticdl.errors import AccessDenied, ElasticDLError, MasterUnreachable, SpecError
from elasticdl.launcher.certificate_manager import CertificateManager
from elasticdl.launcher.kubernetes import job_secrets
from elasticdl.launcher.kubernetes.manifest import SPEC_KEY
from elasticdl.launcher.kubernetes.naming import MASTER, MASTER_PORT, PS, ROLES, WORKER, master_name, metrics_port
from elasticdl.launcher.kubernetes.pod_template import SECRET_MOUNT, SPEC_MOUNT, STATE_MOUNT
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import JobSpec, PsId, WorkerId, load
from elasticdl.spec.directory import JobDirectory, write_private_file
from elasticdl.spec.env import PodEnv, PsEnv, WorkerEnv
from elasticdl.tls import Role
from elasticdl.vital import VitalThread


def enrolling_manager(directory: JobDirectory, spec: JobSpec, run: int) -> CertificateManager:
    """A manager that requests the certificates of this pod's replica from the master."""
    return CertificateManager(
        directory, partial(enroll_replica, directory, spec, run), spec.security.certificate_lifetime_s
    )


def enroll_replica(directory: JobDirectory, spec: JobSpec, run: int, replica: str, now: float) -> str:
    """Create a key, which never leaves the pod, request its certificate from the master, and return both in one text.

    The replica presents the certificate that it has. If it has none, or it has expired, it presents the certificate
    of its role, for which a master grants nothing else.

    Without a valid certificate nothing can begin, so it waits for an unreachable master for as long as a worker that
    has lost its master. With one it tries for the length of a call; there is time to try again.
    """
    from elasticdl.launcher.certificate_authority import SigningRequest

    request = SigningRequest.create(replica)
    problem: ElasticDLError | None = None
    for certificate, timeout_s in _enroll_attempts(directory, spec, replica, now):
        try:
            with MasterClient.connect(directory, timeout_s, run, certificate) as master:
                return request.key_pem + master.enroll(replica, request.csr)
        except (AccessDenied, MasterUnreachable) as exc:
            problem = exc  # by the master's clock the certificate may have expired
    assert problem is not None
    raise problem


def _enroll_attempts(directory: JobDirectory, spec: JobSpec, replica: str, now: float) -> Iterator[tuple[str, float]]:
    """The names of the certificates to present, and how long to wait for the master with each."""
    if has_valid_certificate(directory, replica, now):
        yield replica, spec.timing.rpc_timeout_s
        yield Role.from_replica(replica), spec.timing.rpc_timeout_s
    else:
        yield Role.from_replica(replica), spec.timing.orphan_timeout_s


def has_valid_certificate(directory: JobDirectory, replica: str, now: float) -> bool:
    from elasticdl.launcher.certificate_authority import expires_at

    try:
        return now < expires_at((directory.certificates / f"{replica}.pem").read_bytes())
    except (OSError, ValueError):
        return False


ANY_ADDRESS = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class MountPaths:
    """The mounts of a pod, and the directory that the image's relative paths start from."""

    spec: Path = Path(SPEC_MOUNT)
    secret: Path = Path(SECRET_MOUNT)
    state: Path = Path(STATE_MOUNT)
    work: Path = Path()


def prepare_job_directory(role: str, env: PodEnv, mounts: MountPaths) -> JobDirectory:
    """Create the job directory of this pod. One that an earlier pod of the master left on the volume is kept."""
    directory = JobDirectory(mounts.state / "job")
    spec = _localize_spec(JobSpec.model_validate_json(_read_mounted(mounts.spec / SPEC_KEY)), role, env, mounts)
    directory.create_in_pod(spec, _read_mounted(mounts.secret / job_secrets.TOKEN_FILE))
    if (mounts.secret / job_secrets.PS_KEYS_FILE).exists():
        from elasticdl.ps.wire import keys

        # The mounted file is readable by the pod's group; the code that reads keys wants them private.
        write_private_file(directory.root / keys.KEYS_FILE, _read_mounted(mounts.secret / job_secrets.PS_KEYS_FILE))
    if spec.security.tls:
        _link_certificates(directory, mounts.secret, role)
    # Workers and ps find the master by the name of its Service; the master takes from it the port to listen on.
    address = f"{master_name(spec)}.{env.namespace}.svc:{MASTER_PORT}"
    write_private_file(directory.master, json.dumps({"address": address}))
    return directory


def _link_certificates(directory: JobDirectory, secret: Path, role: str) -> None:
    """Link certificates rather than copy them, so that a pod holds no key twice."""
    directory.certificates.mkdir(mode=0o700, exist_ok=True)
    for name in job_secrets.certificate_files(role):
        link = directory.certificates / name
        link.unlink(missing_ok=True)
        link.symlink_to(secret / name)


def start_certificate_renewal(role: str, env: PodEnv, directory: JobDirectory) -> None:
    """Get the certificate of this replica, and start a thread that renews it.

    Raises MasterUnreachable or AccessDenied.
    """
    spec = directory.load_spec()
    if not spec.security.tls:
        return
    certificates = CertificateManager.open(directory) if role == MASTER else enrolling_manager(directory, spec, env.run)
    clock = WallClock()
    certificates.issue(env.replica, clock.now())
    VitalThread(_renew_forever, args=(certificates, clock), name="certificate").start()


def _renew_forever(certificates: CertificateManager, clock: Clock) -> None:
    assert certificates.check_interval_s is not None
    while True:
        time.sleep(certificates.check_interval_s)
        certificates.renew_due(clock.now())


def replica_command(role: str, env: PodEnv, directory: JobDirectory) -> tuple[list[str], dict[str, str]]:
    """The module that the pod runs, with its arguments, and the variables added to the environment."""
    if role == MASTER:
        return ["elasticdl.master", str(directory.root), "--pods"], {}
    if role == WORKER:
        return ["elasticdl.worker"], WorkerEnv(directory.root, WorkerId(env.replica), env.ip, env.run).to_environ()
    assert role == PS, role
    return ["elasticdl.ps"], PsEnv(directory.root, PsId(env.replica), env.ip, env.run).to_environ()


def _localize_spec(spec: JobSpec, role: str, env: PodEnv, mounts: MountPaths) -> JobSpec:
    """The job's spec with the addresses, certificates and paths of this pod."""
    # A port-forward connects to localhost, workers to the pod's address: a master listens on both.
    address = ANY_ADDRESS if role == MASTER else env.ip
    change: load.JobDocument = {"workers": {"address": address}}
    if (mounts.secret / job_secrets.AUTHORITY_FILE).exists():
        change["security"] = {"tls": True}
    if role == MASTER:
        change["metrics_port"] = metrics_port(spec)
    writable = {
        "output": _writable_path(spec, spec.output, mounts),
        "checkpoint": {"directory": _writable_path(spec, spec.checkpoint.directory, mounts)},
    }
    merged = load.merge_documents(spec.model_dump(mode="json", exclude_none=True), writable, change)
    return load.resolve_job(load.make_paths_absolute(merged, mounts.work.absolute()))


def _writable_path(spec: JobSpec, path: str, mounts: MountPaths) -> str:
    """A relative path is one in the image; if that is read-only, the path moves to the pod's state directory.

    A path on a volume that the user mounted stays: if it cannot be written, that is an error.
    """
    if not path or spec.is_durable(path) or Path(path).is_absolute() or path.startswith("~"):
        return path
    existing = mounts.work.absolute() / path
    while not existing.exists():
        existing = existing.parent
    return path if os.access(existing, os.W_OK) else str(mounts.state / path)


def _publish_refusal(env: PodEnv, problem: ElasticDLError) -> None:
    """Record that the master cannot begin, in the job's result; Kubernetes would only restart it."""
    from elasticdl.kube.api import Api
    from elasticdl.launcher.kubernetes import status_map

    job = env.name.rpartition("-")[0].removesuffix(f"-{MASTER}")  # of JOB-master-0
    try:
        status_map.write_refusal(Api.connect(role=MASTER), job, env.namespace, str(problem), problem.exit_code)
    except ElasticDLError as exc:
        print(f"error: the result of the job could not be written: {exc}", file=sys.stderr)


def _read_mounted(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as exc:
        raise SpecError(
            f"{path}: expected a file of the job's ConfigMap or Secret: {exc.strerror}; is it mounted?"
        ) from exc


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m elasticdl.launcher.kubernetes.pod")
    parser.add_argument("role", choices=ROLES)
    for name in ("spec", "secret", "state"):
        parser.add_argument(f"--{name}", type=Path, default=getattr(MountPaths(), name), help="default: %(default)s")
    arguments = parser.parse_args(argv)
    mounts = MountPaths(arguments.spec, arguments.secret, arguments.state, Path.cwd())
    try:
        env = PodEnv.from_environ(environ)
    except SpecError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code
    try:
        directory = prepare_job_directory(arguments.role, env, mounts)
        start_certificate_renewal(arguments.role, env, directory)
        command, variables = replica_command(arguments.role, env, directory)
    except ElasticDLError as exc:
        print(f"error: {exc}", file=sys.stderr)
        if arguments.role == MASTER:
            _publish_refusal(env, exc)
        return exc.exit_code
    os.environ.update(variables)
    sys.argv[:] = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    signals.exit_on_sigterm()  # until the worker or the ps has a handler of its own
    sys.exit(main(sys.argv[1:], os.environ))
