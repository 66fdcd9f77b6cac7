"""`python -m elasticdl.launcher.pod master|worker|ps`: what runs in a pod.

It makes a job directory of what the manifest mounted, gets the certificate of its replica, and becomes the master, the
worker or the ps: they notice no difference to a job of processes. In the same process: another Python would only import
the same again, and everybody waits for it.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticdl import signals
from elasticdl.clock import Clock, WallClock
from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.launcher import certificates, enrolment
from elasticdl.launcher.issuer import Issuer
from elasticdl.launcher.manifest import SPEC_KEY
from elasticdl.launcher.naming import MASTER, MASTER_PORT, PS, ROLES, WORKER, master_name, metrics_port
from elasticdl.launcher.pod_template import SECRET_PLACE, SPEC_PLACE, STATE_PLACE
from elasticdl.spec import JobSpec, PsId, WorkerId, load
from elasticdl.spec.directory import JobDirectory, write_private
from elasticdl.spec.env import PodEnv, PsEnv, WorkerEnv
from elasticdl.vital import VitalThread

ANY_ADDRESS = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the manifest mounts what a pod needs, and where the image's paths begin."""

    spec: Path = Path(SPEC_PLACE)
    secret: Path = Path(SECRET_PLACE)
    state: Path = Path(STATE_PLACE)
    work: Path = Path()


def prepare(role: str, env: PodEnv, places: Places) -> JobDirectory:
    """The job directory of this pod. Made again, it keeps what an earlier pod of the master left there."""
    directory = JobDirectory(places.state / "job")
    spec = _here(JobSpec.model_validate_json(_text(places.spec / SPEC_KEY)), role, env, places)
    directory.equip(spec, _text(places.secret / certificates.TOKEN))
    if (places.secret / certificates.PS_KEYS).exists():
        from elasticdl.ps import keys

        # The mounted file may be read by the group of the pod; whoever uses keys wants them private.
        write_private(directory.root / keys.FILE, _text(places.secret / certificates.PS_KEYS))
    if spec.security.tls:
        _link_certificates(directory, places.secret, role)
    # Workers and ps find the master by the name of its Service; the master takes from it the port to listen on.
    address = f"{master_name(spec)}.{env.namespace}.svc:{MASTER_PORT}"
    write_private(directory.master, json.dumps({"address": address}))
    return directory


def _link_certificates(directory: JobDirectory, secret: Path, role: str) -> None:
    """Links, not copies: there are no more keys in a pod than it needs."""
    directory.certificates.mkdir(mode=0o700, exist_ok=True)
    for name in certificates.certificate_files(role):
        link = directory.certificates / name
        link.unlink(missing_ok=True)
        link.symlink_to(secret / name)


def keep_certificate(role: str, env: PodEnv, directory: JobDirectory) -> None:
    """Get the certificate of this replica; a thread replaces it from now on. MasterUnreachable, AccessDenied."""
    spec = directory.load_spec()
    if not spec.security.tls:
        return
    issuer = Issuer.open(directory) if role == MASTER else enrolment.issuer(directory, spec, env.run)
    clock = WallClock()
    issuer.issue(env.replica, clock.now())
    VitalThread(_renew, args=(issuer, clock), name="certificate").start()


def _renew(issuer: Issuer, clock: Clock) -> None:
    assert issuer.wait_s is not None
    while True:
        time.sleep(issuer.wait_s)
        issuer.renew(clock.now())


def command(role: str, env: PodEnv, directory: JobDirectory) -> tuple[list[str], dict[str, str]]:
    """What the pod becomes: a module with its arguments, and what is added to the environment."""
    if role == MASTER:
        return ["elasticdl.master", str(directory.root), "--pods"], {}
    if role == WORKER:
        return ["elasticdl.worker"], WorkerEnv(directory.root, WorkerId(env.replica), env.ip, env.run).to_environ()
    assert role == PS, role
    return ["elasticdl.ps"], PsEnv(directory.root, PsId(env.replica), env.ip, env.run).to_environ()


def _here(given: JobSpec, role: str, env: PodEnv, places: Places) -> JobSpec:
    """The job as it is in this pod: addresses, certificates and paths of its own."""
    # A port-forward ends at localhost, workers come to the pod's address: a master listens at both.
    address = ANY_ADDRESS if role == MASTER else env.ip
    change: load.Document = {"workers": {"address": address}}
    if (places.secret / certificates.AUTHORITY).exists():
        change["security"] = {"tls": True}
    if role == MASTER:
        change["metrics_port"] = metrics_port(given)
    writable = {
        "output": _writable(given, given.output, places),
        "checkpoint": {"directory": _writable(given, given.checkpoint.directory, places)},
    }
    merged = load.merge(given.model_dump(mode="json", exclude_none=True), writable, change)
    return load.resolve(load.anchor(merged, places.work.absolute()))


def _writable(spec: JobSpec, path: str, places: Places) -> str:
    """A relative path is meant in the image; where that is read-only, it lies beside the pod's state.

    Not where the person has mounted a volume: if that cannot be written, they want to hear of it.
    """
    if not path or spec.keeps(path) or Path(path).is_absolute() or path.startswith("~"):
        return path
    place = places.work.absolute() / path
    while not place.exists():
        place = place.parent
    return path if os.access(place, os.W_OK) else str(places.state / path)


def _refuse(env: PodEnv, problem: ElasticDLError) -> None:
    """A master that cannot begin says so where people look; it would only be started again."""
    from elasticdl.kube.api import Api
    from elasticdl.launcher import last_word

    job = env.name.rpartition("-")[0].removesuffix(f"-{MASTER}")  # of JOB-master-0
    try:
        last_word.refuse(Api.connect(role=MASTER), job, env.namespace, str(problem), problem.exit_code)
    except ElasticDLError as exc:
        print(f"error: it could not be written down: {exc}", file=sys.stderr)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as exc:
        raise SpecError(
            f"{path}: expected a file of the job's ConfigMap or Secret: {exc.strerror}; is it mounted?"
        ) from exc


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m elasticdl.launcher.pod")
    parser.add_argument("role", choices=ROLES)
    for name in ("spec", "secret", "state"):
        parser.add_argument(f"--{name}", type=Path, default=getattr(Places(), name), help="default: %(default)s")
    arguments = parser.parse_args(argv)
    places = Places(arguments.spec, arguments.secret, arguments.state, Path.cwd())
    try:
        env = PodEnv.from_environ(environ)
    except SpecError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code
    try:
        directory = prepare(arguments.role, env, places)
        keep_certificate(arguments.role, env, directory)
        become, added = command(arguments.role, env, directory)
    except ElasticDLError as exc:
        print(f"error: {exc}", file=sys.stderr)
        if arguments.role == MASTER:
            _refuse(env, exc)
        return exc.exit_code
    os.environ.update(added)
    sys.argv[:] = become
    runpy.run_module(become[0], run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    signals.end_on_terminate()  # until the worker or the ps has something to leave
    sys.exit(main(sys.argv[1:], os.environ))
