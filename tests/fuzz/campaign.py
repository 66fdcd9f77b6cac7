"""A fuzzing campaign over one target: runs inputs in batches and counts them in a file, so that it can be continued."""

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

BATCH_INPUTS = 25_000  # inputs of one process
MAX_BYTES = 4096
HANG_S = 20  # one input that takes longer is a finding
MAX_SAVED, MAX_SAVED_BYTES = 32, 1024  # inputs that one campaign adds to a corpus, and their size
ROOT = Path(__file__).parents[2]
_EXECUTED = re.compile(rb"number_of_executed_units:\s*(\d+)")
_ARTIFACT = re.compile(rb"Test unit written to (\S+)")


@dataclass
class Progress:
    """Progress of one target, as saved in its file."""

    target: str
    seed: int
    inputs: int = 0
    parts: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)  # files with the inputs
    commit: str = ""  # of the code that the newest inputs were tried on

    @property
    def rate(self) -> float:
        return self.inputs / self.seconds if self.seconds else 0.0


def load_progress(name: str, ledger: Path, seed: int) -> Progress:
    """Returns the progress of a target; zero if it was never run."""
    file = _progress_file(name, ledger)
    return Progress(**json.loads(file.read_text())) if file.exists() else Progress(name, seed)


def _progress_file(name: str, ledger: Path) -> Path:
    return ledger / f"{name}.json"


class Campaign:
    """Fuzzes one target. Its progress is saved in the `ledger`, which is small and can be committed, so that a campaign
    can be continued wherever the repository is; findings and the generated corpus are in the directory."""

    def __init__(self, name: str, directory: Path, seed: int, ledger: Path | None = None) -> None:
        self.directory = directory / name
        self._target = targets.load(name)
        self._ledger = ledger or directory
        self._ledger.mkdir(parents=True, exist_ok=True)
        self.progress = load_progress(name, self._ledger, seed)
        self._generated = self.directory / "corpus"
        self._generated.mkdir(parents=True, exist_ok=True)
        self._committed = self._target.corpus
        self._committed.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(self._target.seeds()):
            (self._generated / f"seed-{number}").write_bytes(data)

    def run(self, inputs: int, report: Callable[[str], None]) -> bool:
        """Runs until `inputs` were tried in all. Returns False at the first finding."""
        progress = self.progress
        while progress.inputs < inputs and not progress.findings:
            self._run_batch(min(BATCH_INPUTS, inputs - progress.inputs))
            report(
                f"{progress.target}: {progress.inputs:,} of {inputs:,} inputs, {progress.rate:,.0f} a second, "
                f"seed {progress.seed}, {len(list(self._generated.iterdir()))} in the corpus"
            )
        for path in progress.findings:
            report(f"{progress.target}: FOUND {path}\n  python -m tests.fuzz --target {progress.target} --input {path}")
        return not progress.findings

    def save_corpus(self) -> None:
        """Copies some small inputs that reached new code into the repository's corpus; a random choice, since their
        names are hashes."""
        small = [path for path in sorted(self._generated.iterdir()) if 0 < path.stat().st_size <= MAX_SAVED_BYTES]
        for path in [path for path in small if not path.name.startswith("seed-")][:MAX_SAVED]:
            shutil.copy(path, self._committed / path.name)

    def _run_batch(self, inputs: int) -> None:
        progress = self.progress
        began = time.monotonic()
        seed = (progress.seed * 100_003 + progress.parts) % 2**31 + 1
        # libFuzzer's own limit of memory is off: it reads the peak, which a process inherits from its parent.
        # child.py sets the limit.
        output = self._run_child(
            f"-runs={inputs}", f"-seed={seed}", f"-max_len={MAX_BYTES}", f"-timeout={HANG_S}",
            "-rss_limit_mb=0", "-print_final_stats=1", f"-artifact_prefix={self.directory}/",
            str(self._generated), str(self._committed),
        )  # fmt: skip
        executed, artifact = _EXECUTED.search(output), _ARTIFACT.search(output)
        if executed is None or (artifact is None and b"Done " not in output):
            # The process ended without libFuzzer's summary: it was killed, or aborted by a library.
            log = self.directory / f"part-{progress.parts}.log"
            log.write_bytes(output)
            raise SystemExit(f"{progress.target}: the fuzzing process ended unexpectedly; its output is in {log}")
        progress.inputs += int(executed[1])
        progress.parts += 1
        progress.seconds += time.monotonic() - began
        if artifact is not None:
            progress.findings.append(artifact[1].decode())
            Path(artifact[1].decode() + ".log").write_bytes(output[-20_000:])
        progress.commit = commit()
        _progress_file(progress.target, self._ledger).write_text(json.dumps(asdict(progress), indent=1) + "\n")

    def _run_child(self, *options: str) -> bytes:
        argv = [sys.executable, "-m", "tests.fuzz.child", self.progress.target, *options]
        # One arena: those of other threads would reserve address space that counts as allocated.
        environ = {**os.environ, "MALLOC_ARENA_MAX": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        completed = subprocess.run(
            argv, cwd=ROOT, env=environ, capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
        return completed.stdout + completed.stderr + f"\nended with {completed.returncode}\n".encode()
