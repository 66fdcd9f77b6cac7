"""The job directory and the names of all its files.

Only its owner can read it (mode 0700), because it contains the job's token.
"""

from __future__ import annotations

import json
import secrets
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl import atomic, tls
from elasticdl.errors import SpecError, StateDamaged
from elasticdl.spec.job import JobSpec
from elasticdl.storage.paths import AnyPath, parse_path

RESERVE_BYTES = 64 << 10
_CHECKSUM = "checksum"


@dataclass(frozen=True, slots=True)
class JobDirectory:
    root: Path

    @property
    def spec(self) -> Path:
        return self.root / "spec.json"

    @property
    def token(self) -> Path:
        return self.root / "token"

    @property
    def master(self) -> Path:
        """Address, pid and metrics port of the running master, as JSON."""
        return self.root / "master.json"

    @property
    def launcher(self) -> Path:
        """The launcher and the processes that it started, as JSON."""
        return self.root / "launcher.json"

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def result(self) -> Path:
        """How the job ended, as JSON; absent while it runs."""
        return self.root / "result.json"

    @property
    def reserve(self) -> Path:
        """A file that reserves space for the result, in case the disk is full when the job ends."""
        return self.root / "reserve"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def tensorboard(self) -> Path:
        return self.root / "tensorboard"

    @property
    def index(self) -> Path:
        """Offsets of records in the data files, shared by all workers of the job."""
        return self.root / "index"

    @property
    def counters(self) -> Path:
        """One file per ps, which outlives it, with the number of pushes that it has acknowledged."""
        return self.root / "counters"

    @property
    def certificates(self) -> Path:
        """The certificates of a job with its own authority: the authority's, and a file for each replica."""
        return self.root / "certificates"

    @property
    def authority(self) -> Path:
        return self.certificates / "authority.pem"

    def tls_credentials(self, spec: JobSpec, replica: str) -> tls.TlsCredentials | None:
        """The TLS credentials of a replica, or of "client"; None if the job has no TLS."""
        security = spec.security
        if not security.is_on:
            return None
        if security.certificate:
            return tls.TlsCredentials(Path(security.ca), Path(security.certificate), Path(security.key))
        own = self.certificates / f"{replica}.pem"
        return tls.TlsCredentials(self.authority, own, own, spec.name)

    @property
    def timeline(self) -> Path:
        return self.root / "timeline.png"

    def log_file(self, replica: str) -> Path:
        return self.logs / f"{replica}.log"

    def exit_reason_file(self, replica: str) -> Path:
        """The file to which a replica writes its exit reason when a vital thread has failed."""
        return self.logs / f"{replica}.reason"

    def checkpoints(self, spec: JobSpec) -> AnyPath:
        address = spec.checkpoint.directory
        return parse_path(address, spec.timing.store_retry_s) if address else self.root / "checkpoints"

    def create(self, spec: JobSpec) -> None:
        """Creates the directory with the spec and a new token."""
        self.root.mkdir(parents=True, mode=0o700)
        self._write_files(spec)

    def previous_runs(self) -> list[JobDirectory]:
        """The directories of earlier runs, oldest first."""
        return [JobDirectory(path) for path in sorted(self.root.glob("previous-[0-9]*"), key=_run_number)]

    @property
    def run_number(self) -> int:
        """The number of the current run: 1, plus one for each resumption."""
        return max((_run_number(run.root) for run in self.previous_runs()), default=0) + 1

    def create_next_run(self, spec: JobSpec) -> Path:
        """Prepares the directory for resuming the job; returns the directory `previous-N` of the former files.

        Checkpoints, indexes and TensorBoard files stay in place; everything else moves there.
        """
        previous = self.root / f"previous-{self.run_number}"
        previous.mkdir()
        self.reserve.unlink(missing_ok=True)
        kept_names = {previous.name, "checkpoints", self.index.name, self.tensorboard.name}
        for path in sorted(self.root.iterdir()):
            if path.name in kept_names or path.name.startswith("previous-"):
                continue
            if path in (self.spec, self.token):  # without them the job could not be found after a crash
                shutil.copy2(path, previous / path.name)
            else:
                path.rename(previous / path.name)
        self._write_files(spec)
        return previous

    def create_in_pod(self, spec: JobSpec, token: str) -> None:
        """Creates the directory from the files mounted into a pod; the files of an earlier pod of it stay."""
        self.root.mkdir(parents=True, mode=0o700, exist_ok=True)
        self._write_files(spec, token)

    def _write_files(self, spec: JobSpec, token: str = "") -> None:
        self.logs.mkdir(exist_ok=True)
        self.reserve.write_bytes(bytes(RESERVE_BYTES))
        self.index.mkdir(exist_ok=True)
        self.write_spec(spec)
        write_private_file(self.token, token or secrets.token_urlsafe(32))

    def write_spec(self, spec: JobSpec) -> None:
        write_json(self.spec, json.loads(spec.model_dump_json()))

    def load_spec(self) -> JobSpec:
        try:
            document = read_json(self.spec)
        except StateDamaged as exc:
            raise SpecError(
                f"{exc}; continue from its checkpoints under another name, with all its options, --resume and "
                "--checkpoint_dir"
            ) from exc
        if document is None:
            raise SpecError(f"{self.root} is not a job directory: it has no spec.json")
        return JobSpec.model_validate_json(json.dumps(document))

    def load_token(self) -> str:
        return self.token.read_text()


def _run_number(path: Path) -> int:
    return int(path.name.removeprefix("previous-"))


def write_private_file(path: Path, text: str) -> None:
    """Replaces `path` atomically by a file that only its owner may read."""
    atomic.write_file(path, text, mode=atomic.PRIVATE_MODE)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replaces `path` atomically by a document with a checksum, which only its owner may read."""
    as_json = json.loads(json.dumps(document))  # as it will be read: all keys are text
    write_private_file(path, json.dumps({**as_json, _CHECKSUM: _checksum(as_json)}, indent=1))


def read_json(path: Path) -> dict[str, Any] | None:
    """The document at `path`; None if it does not exist (yet). Raises StateDamaged if it is damaged.

    A document without a checksum was written by another program, and is not checked.
    """
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as exc:
        raise StateDamaged(f"{path} is damaged: {exc}") from exc
    if not isinstance(document, dict):
        raise StateDamaged(f"{path} is damaged: expected a mapping, received {type(document).__name__}")
    if _CHECKSUM in document and document.pop(_CHECKSUM) != _checksum(document):
        raise StateDamaged(f"{path} is damaged: it has a wrong checksum")
    return document


def _checksum(document: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(document, sort_keys=True).encode()):08x}"
