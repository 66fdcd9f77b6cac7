"""Which key begins each range of rows of a table in the order of its key: found in one pass, kept as a file.

All workers and restarts of a job that have the file number rows the same way, also when rows were added behind
the last key meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from elasticdl.errors import DataError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Keys as the database writes them, a text for each column of the key."""

    rows: int
    range_rows: int
    firsts: tuple[tuple[str, ...], ...]  # of each range
    last: tuple[str, ...]  # of all; () where there are no rows

    def bounds(self, start: int) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """The first key of the range that begins at row `start`, and of the next one; None for the last range."""
        number = start // self.range_rows
        return self.firsts[number], self.firsts[number + 1] if number + 1 < len(self.firsts) else None


def path_of(directory: Path, table: str, key: Sequence[str], range_rows: int) -> Path:
    identity = json.dumps([_VERSION, table, list(key), range_rows])
    return directory / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.keys.json"


def load(path: Path) -> KeyRanges | None:
    """What was kept there, or None."""
    try:
        found = json.loads(path.read_text())
        firsts = tuple(tuple(map(str, key)) for key in found["firsts"])
        return KeyRanges(int(found["rows"]), int(found["range_rows"]), firsts, tuple(map(str, found["last"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(path: Path, ranges: KeyRanges) -> KeyRanges:
    """Write it, unless somebody did meanwhile; what is there in the end holds."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, staging = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
        try:
            with os.fdopen(descriptor, "w") as out:
                json.dump(asdict(ranges), out)
                out.flush()
                os.fsync(out.fileno())
            os.link(staging, path)
        except FileExistsError:
            if load(path) is None:  # a power cut left it without its content
                os.replace(staging, path)
        finally:
            Path(staging).unlink(missing_ok=True)
    except OSError as exc:
        raise DataError(f"the index of the table cannot be written to {path.parent}: {exc}") from exc
    return load(path) or ranges
