"""The job directory: every file a job keeps, named once.

It is private to its owner (mode 0700): the token and the spec lie in it.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl import replacement
from elasticdl.errors import SpecError
from elasticdl.spec.job import JobSpec
from elasticdl.storage.place import Place, open_place

RESERVE_BYTES = 64 << 10


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
        """Pid of the launcher and what it started, as JSON."""
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
        """Room for the result, should the disk be full when the job ends."""
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
        """How many pushes each ps has acknowledged: a file each, which outlives it."""
        return self.root / "counters"

    @property
    def timeline(self) -> Path:
        return self.root / "timeline.png"

    def log(self, replica: str) -> Path:
        return self.logs / f"{replica}.log"

    def checkpoints(self, spec: JobSpec) -> Place:
        given = spec.checkpoint.directory
        return open_place(given, spec.timing.store_s) if given else self.root / "checkpoints"

    def create(self, spec: JobSpec) -> None:
        """Make the directory with the spec and a fresh token in it."""
        self.root.mkdir(parents=True, mode=0o700)
        self._furnish(spec)

    def earlier_runs(self) -> list[JobDirectory]:
        """What `create_again` moved away, the oldest first."""
        return [JobDirectory(path) for path in sorted(self.root.glob("previous-[0-9]*"), key=_run_number)]

    def create_again(self, spec: JobSpec) -> Path:
        """Make room for a job that goes on from its checkpoints; returns where its former files lie now.

        Checkpoints, indexes and TensorBoard files stay in place; all else moves into `previous-N`.
        """
        number = max((_run_number(run.root) for run in self.earlier_runs()), default=0) + 1
        previous = self.root / f"previous-{number}"
        previous.mkdir()
        self.reserve.unlink(missing_ok=True)
        kept = {previous.name, "checkpoints", self.index.name, self.tensorboard.name}
        for path in sorted(self.root.iterdir()):
            if path.name not in kept and not path.name.startswith("previous-"):
                path.rename(previous / path.name)
        self._furnish(spec)
        return previous

    def equip(self, spec: JobSpec, token: str) -> None:
        """Make the directory with what was mounted into a pod; one that an earlier pod left is found as it was."""
        self.root.mkdir(parents=True, mode=0o700, exist_ok=True)
        self._furnish(spec, token)

    def _furnish(self, spec: JobSpec, token: str = "") -> None:
        self.logs.mkdir(exist_ok=True)
        self.reserve.write_bytes(bytes(RESERVE_BYTES))
        self.index.mkdir(exist_ok=True)
        write_private(self.spec, spec.model_dump_json(indent=2))
        write_private(self.token, token or secrets.token_urlsafe(32))

    def load_spec(self) -> JobSpec:
        try:
            return JobSpec.model_validate_json(self.spec.read_text())
        except FileNotFoundError as exc:
            raise SpecError(f"{self.root} is not a job directory: it has no spec.json") from exc

    def load_token(self) -> str:
        return self.token.read_text()


def _run_number(path: Path) -> int:
    return int(path.name.removeprefix("previous-"))


def write_private(path: Path, text: str) -> None:
    """Replace `path` atomically; only its owner may read it."""
    replacement.write(path, text, mode=replacement.PRIVATE)


def read_json(path: Path) -> dict[str, Any] | None:
    """The document at `path`, or None where there is none (yet)."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    assert isinstance(document, dict)
    return document
