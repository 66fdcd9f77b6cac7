"""A campaign over one target: inputs in parts, counted in a file, so that it is resumed where it was."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos.campaign import commit
from tests.fuzz import targets

PART = 25_000  # inputs of one process
MAX_BYTES = 4096
HANG_S = 20  # one input that takes longer is a finding
KEPT, KEPT_BYTES = 32, 1024  # inputs that one campaign adds to a corpus at most, and their size
ROOT = Path(__file__).parents[2]
_EXECUTED = re.compile(rb"number_of_executed_units:\s*(\d+)")
_ARTIFACT = re.compile(rb"Test unit written to (\S+)")


@dataclass
class Progress:
    """Of one target, as it stands in its file."""

    target: str
    seed: int
    inputs: int = 0
    parts: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)  # files with the inputs
    commit: str = ""  # of the code that the last of them were tried on

    @property
    def rate(self) -> float:
        return self.inputs / self.seconds if self.seconds else 0.0


def progress_of(name: str, ledger: Path, seed: int) -> Progress:
    """How far a target is; a new one where nobody has begun."""
    file = _progress_file(name, ledger)
    return Progress(**json.loads(file.read_text())) if file.exists() else Progress(name, seed)


def _progress_file(name: str, ledger: Path) -> Path:
    return ledger / f"{name}.json"


class Campaign:
    """Of one target. Its progress lies in the `ledger`, which is small and can be committed, so that a campaign goes on
    wherever the repository is; what it found and grew lies in the directory."""

    def __init__(self, name: str, directory: Path, seed: int, ledger: Path | None = None) -> None:
        self.directory = directory / name
        self._target = targets.load(name)
        self._ledger = ledger or directory
        self._ledger.mkdir(parents=True, exist_ok=True)
        self.progress = progress_of(name, self._ledger, seed)
        self._grown = self.directory / "corpus"
        self._grown.mkdir(parents=True, exist_ok=True)
        self._kept = self._target.corpus
        self._kept.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(self._target.seeds()):
            (self._grown / f"seed-{number}").write_bytes(data)

    def run(self, inputs: int, tell: Callable[[str], None]) -> bool:
        """Until so many inputs were tried in all, or one is a finding; False for that."""
        progress = self.progress
        while progress.inputs < inputs and not progress.findings:
            self._part(min(PART, inputs - progress.inputs))
            tell(
                f"{progress.target}: {progress.inputs:,} of {inputs:,} inputs, {progress.rate:,.0f} a second, "
                f"seed {progress.seed}, {len(list(self._grown.iterdir()))} in the corpus"
            )
        for path in progress.findings:
            tell(f"{progress.target}: FOUND {path}\n  python -m tests.fuzz --target {progress.target} --input {path}")
        return not progress.findings

    def keep(self) -> None:
        """Some of the inputs that reached what others had not go into the repository's corpus: small ones, by chance,
        since their names are hashes."""
        small = [path for path in sorted(self._grown.iterdir()) if 0 < path.stat().st_size <= KEPT_BYTES]
        for path in [path for path in small if not path.name.startswith("seed-")][:KEPT]:
            shutil.copy(path, self._kept / path.name)

    def _part(self, inputs: int) -> None:
        progress = self.progress
        began = time.monotonic()
        seed = (progress.seed * 100_003 + progress.parts) % 2**31 + 1
        # libFuzzer's own limit on memory is off: it reads the peak, which a process takes over from its parent.
        # child.py sets the bound.
        said = self._child(
            f"-runs={inputs}", f"-seed={seed}", f"-max_len={MAX_BYTES}", f"-timeout={HANG_S}",
            "-rss_limit_mb=0", "-print_final_stats=1", f"-artifact_prefix={self.directory}/",
            str(self._grown), str(self._kept),
        )  # fmt: skip
        executed, artifact = _EXECUTED.search(said), _ARTIFACT.search(said)
        if executed is None or (artifact is None and b"Done " not in said):
            # A process that ended without libFuzzer's last words: killed, or aborted by a library.
            log = self.directory / f"part-{progress.parts}.log"
            log.write_bytes(said)
            raise SystemExit(f"{progress.target}: the fuzzing process ended by itself; what it said is in {log}")
        progress.inputs += int(executed[1])
        progress.parts += 1
        progress.seconds += time.monotonic() - began
        if artifact is not None:
            progress.findings.append(artifact[1].decode())
            Path(artifact[1].decode() + ".log").write_bytes(said[-20_000:])
        progress.commit = commit()
        _progress_file(progress.target, self._ledger).write_text(json.dumps(asdict(progress), indent=1) + "\n")

    def _child(self, *options: str) -> bytes:
        argv = [sys.executable, "-m", "tests.fuzz.child", self.progress.target, *options]
        # One arena: those of other threads would reserve address space that counts as allocated.
        environ = {**os.environ, "MALLOC_ARENA_MAX": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        return done.stdout + done.stderr + f"\nended with {done.returncode}\n".encode()
