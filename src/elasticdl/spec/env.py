"""The identity of this process, read from environment variables and written to them. Only this module names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import SpecError
from elasticdl.spec.ids import PsId, WorkerId

HOME = "ELASTICDL_HOME"
JOB_DIRECTORY = "ELASTICDL_JOB_DIRECTORY"
WORKER = "ELASTICDL_WORKER"
PS = "ELASTICDL_PS"
ADDRESS = "ELASTICDL_ADDRESS"
RUN = "ELASTICDL_RUN"
FAULTS = "ELASTICDL_FAULTS"
POD_IP = "ELASTICDL_POD_IP"
POD_NAME = "ELASTICDL_POD_NAME"
NAMESPACE = "ELASTICDL_NAMESPACE"
REPLICA = "ELASTICDL_REPLICA"


@dataclass(frozen=True, slots=True)
class WorkerEnv:
    """A worker's job, its id, and the address at which peers reach it."""

    job_directory: Path
    worker: WorkerId
    address: str
    run: int  # of the job: see `JobDirectory.run_number`
    faults: str = ""  # fault injection for tests, see elasticdl.faults

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> WorkerEnv:
        try:
            return cls(
                job_directory=Path(environ[JOB_DIRECTORY]),
                worker=WorkerId(environ[WORKER]),
                address=environ[ADDRESS],
                run=_parse_run(environ[RUN]),
                faults=environ.get(FAULTS, ""),
            )
        except KeyError as exc:
            raise SpecError(f"{exc.args[0]} is not set: a worker is started by the launcher, not by hand") from exc

    def to_environ(self) -> dict[str, str]:
        """The environment variables of this worker."""
        environ = {
            JOB_DIRECTORY: str(self.job_directory),
            WORKER: self.worker,
            ADDRESS: self.address,
            RUN: str(self.run),
        }
        return environ | ({FAULTS: self.faults} if self.faults else {})


@dataclass(frozen=True, slots=True)
class PsEnv:
    """A ps's job, its id, and the address at which workers and other ps reach it."""

    job_directory: Path
    ps: PsId
    address: str
    run: int
    faults: str = ""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> PsEnv:
        try:
            return cls(
                job_directory=Path(environ[JOB_DIRECTORY]),
                ps=PsId(environ[PS]),
                address=environ[ADDRESS],
                run=_parse_run(environ[RUN]),
                faults=environ.get(FAULTS, ""),
            )
        except KeyError as exc:
            raise SpecError(f"{exc.args[0]} is not set: a ps is started by the launcher, not by hand") from exc

    def to_environ(self) -> dict[str, str]:
        """The environment variables of this ps."""
        environ = {JOB_DIRECTORY: str(self.job_directory), PS: self.ps, ADDRESS: self.address, RUN: str(self.run)}
        return environ | ({FAULTS: self.faults} if self.faults else {})


@dataclass(frozen=True, slots=True)
class PodEnv:
    """The identity of a pod, from the variables in its manifest."""

    ip: str
    name: str
    namespace: str
    replica: str
    run: int = 0  # of the job, for a worker or a ps; 0: the master's pod, which determines it

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> PodEnv:
        try:
            return cls(
                ip=environ[POD_IP],
                name=environ[POD_NAME],
                namespace=environ[NAMESPACE],
                replica=environ[REPLICA],
                run=_parse_run(environ.get(RUN, "0")),
            )
        except KeyError as exc:
            raise SpecError(f"{exc.args[0]} is not set: this runs in the pods of a job, not by hand") from exc


def _parse_run(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise SpecError(f"{RUN}: expected the number of a run of the job, received {text!r}")
    return int(text)


def elasticdl_home(environ: Mapping[str, str]) -> Path:
    """The directory of this user's jobs: $ELASTICDL_HOME, or ~/.elasticdl."""
    return Path(environ.get(HOME) or Path.home() / ".elasticdl")
