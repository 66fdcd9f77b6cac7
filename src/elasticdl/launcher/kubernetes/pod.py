"""`python -m elasticdl.launcher.kubernetes.pod master|worker|ps`: what runs in a pod."""

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
    """Keeps the certificates of replicas of this pod, by asking the master for them."""
    return CertificateManager(
        directory, partial(enroll_replica, directory, spec, run), spec.security.certificate_lifetime_s
    )


def enroll_replica(directory: JobDirectory, spec: JobSpec, run: int, replica: str, now: float) -> str:
    """Make a key, which never leaves the pod, ask the master for its certificate, and return both in one text.

    The replica shows the certificate that it has; where it has none yet, or one that has expired, that of its role,
    with which a master grants nothing else.

    Without a valid certificate it waits for a master that is away as long as a worker does that has lost it: without
    one nothing can begin. A replica that has one tries no longer than a call takes; there is time to try again.
    """
    from elasticdl.launcher.certificate_authority import SigningRequest

    request = SigningRequest.create(replica)
    problem: ElasticDLError | None = None
    for shown, timeout_s in _enroll_attempts(directory, spec, replica, now):
        try:
            with MasterClient.connect(directory, timeout_s, run, shown) as master:
                return request.key_pem + master.enroll(replica, request.csr)
        except (AccessDenied, MasterUnreachable) as exc:
            problem = exc  # its clock and ours may differ about what has run out
    assert problem is not None
    raise problem


def _enroll_attempts(directory: JobDirectory, spec: JobSpec, replica: str, now: float) -> Iterator[tuple[str, float]]:
    """Whose certificate to show, and how long to wait for the master."""
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
    """Where the manifest mounts what a pod needs, and where the image's paths begin."""

    spec: Path = Path(SPEC_MOUNT)
    secret: Path = Path(SECRET_MOUNT)
    state: Path = Path(STATE_MOUNT)
    work: Path = Path()


def prepare_job_directory(role: str, env: PodEnv, places: MountPaths) -> JobDirectory:
    """The job directory of this pod. Made again, it keeps what an earlier pod of the master left there."""
    directory = JobDirectory(places.state / "job")
    spec = _localize_spec(JobSpec.model_validate_json(_read_mounted(places.spec / SPEC_KEY)), role, env, places)
    directory.create_in_pod(spec, _read_mounted(places.secret / job_secrets.TOKEN_FILE))
    if (places.secret / job_secrets.PS_KEYS_FILE).exists():
        from elasticdl.ps.wire import keys

        # The mounted file may be read by the group of the pod; whoever uses keys wants them private.
        write_private_file(directory.root / keys.KEYS_FILE, _read_mounted(places.secret / job_secrets.PS_KEYS_FILE))
    if spec.security.tls:
        _link_certificates(directory, places.secret, role)
    # Workers and ps find the master by the name of its Service; the master takes from it the port to listen on.
    address = f"{master_name(spec)}.{env.namespace}.svc:{MASTER_PORT}"
    write_private_file(directory.master, json.dumps({"address": address}))
    return directory


def _link_certificates(directory: JobDirectory, secret: Path, role: str) -> None:
    """Links, not copies: there are no more keys in a pod than it needs."""
    directory.certificates.mkdir(mode=0o700, exist_ok=True)
    for name in job_secrets.certificate_files(role):
        link = directory.certificates / name
        link.unlink(missing_ok=True)
        link.symlink_to(secret / name)


def start_certificate_renewal(role: str, env: PodEnv, directory: JobDirectory) -> None:
    """Get the certificate of this replica; a thread replaces it from now on. MasterUnreachable, AccessDenied."""
    spec = directory.load_spec()
    if not spec.security.tls:
        return
    issuer = CertificateManager.open(directory) if role == MASTER else enrolling_manager(directory, spec, env.run)
    clock = WallClock()
    issuer.issue(env.replica, clock.now())
    VitalThread(_renew_forever, args=(issuer, clock), name="certificate").start()


def _renew_forever(issuer: CertificateManager, clock: Clock) -> None:
    assert issuer.check_interval_s is not None
    while True:
        time.sleep(issuer.check_interval_s)
        issuer.renew_due(clock.now())


def replica_command(role: str, env: PodEnv, directory: JobDirectory) -> tuple[list[str], dict[str, str]]:
    """What the pod becomes: a module with its arguments, and what is added to the environment."""
    if role == MASTER:
        return ["elasticdl.master", str(directory.root), "--pods"], {}
    if role == WORKER:
        return ["elasticdl.worker"], WorkerEnv(directory.root, WorkerId(env.replica), env.ip, env.run).to_environ()
    assert role == PS, role
    return ["elasticdl.ps"], PsEnv(directory.root, PsId(env.replica), env.ip, env.run).to_environ()


def _localize_spec(given: JobSpec, role: str, env: PodEnv, places: MountPaths) -> JobSpec:
    """The job as it is in this pod: addresses, certificates and paths of its own."""
    # A port-forward ends at localhost, workers come to the pod's address: a master listens at both.
    address = ANY_ADDRESS if role == MASTER else env.ip
    change: load.JobDocument = {"workers": {"address": address}}
    if (places.secret / job_secrets.AUTHORITY_FILE).exists():
        change["security"] = {"tls": True}
    if role == MASTER:
        change["metrics_port"] = metrics_port(given)
    writable = {
        "output": _writable_path(given, given.output, places),
        "checkpoint": {"directory": _writable_path(given, given.checkpoint.directory, places)},
    }
    merged = load.merge_documents(given.model_dump(mode="json", exclude_none=True), writable, change)
    return load.resolve_job(load.make_paths_absolute(merged, places.work.absolute()))


def _writable_path(spec: JobSpec, path: str, places: MountPaths) -> str:
    """A relative path is meant in the image; where that is read-only, it lies beside the pod's state.

    Not where the person has mounted a volume: if that cannot be written, they want to hear of it.
    """
    if not path or spec.is_durable(path) or Path(path).is_absolute() or path.startswith("~"):
        return path
    place = places.work.absolute() / path
    while not place.exists():
        place = place.parent
    return path if os.access(place, os.W_OK) else str(places.state / path)


def _publish_refusal(env: PodEnv, problem: ElasticDLError) -> None:
    """A master that cannot begin says so where people look; it would only be started again."""
    from elasticdl.kube.api import Api
    from elasticdl.launcher.kubernetes import status_map

    job = env.name.rpartition("-")[0].removesuffix(f"-{MASTER}")  # of JOB-master-0
    try:
        status_map.write_refusal(Api.connect(role=MASTER), job, env.namespace, str(problem), problem.exit_code)
    except ElasticDLError as exc:
        print(f"error: it could not be written down: {exc}", file=sys.stderr)


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
    places = MountPaths(arguments.spec, arguments.secret, arguments.state, Path.cwd())
    try:
        env = PodEnv.from_environ(environ)
    except SpecError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code
    try:
        directory = prepare_job_directory(arguments.role, env, places)
        start_certificate_renewal(arguments.role, env, directory)
        become, added = replica_command(arguments.role, env, directory)
    except ElasticDLError as exc:
        print(f"error: {exc}", file=sys.stderr)
        if arguments.role == MASTER:
            _publish_refusal(env, exc)
        return exc.exit_code
    os.environ.update(added)
    sys.argv[:] = become
    runpy.run_module(become[0], run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    signals.exit_on_sigterm()  # until the worker or the ps has something to leave
    sys.exit(main(sys.argv[1:], os.environ))
