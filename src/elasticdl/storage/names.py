"""Checks of file names that come from a manifest, an index or a message: they must not lead out of a directory.

The author of a checkpoint or an export also writes its manifest. A name in it is joined to a directory of the job, to
be read, written or downloaded: it must stay below that directory on every system.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

MAX_NAME_BYTES = 255  # bytes of a component: what file systems take
_DRIVE = re.compile(r"[A-Za-z]:")


class UnsafeName(ValueError):
    """The name leads out of its directory, or is not a file name."""


def check_file_name(name: str) -> str:
    """Returns `name` if it names a file in a directory. Raises UnsafeName."""
    if not isinstance(name, str):
        raise UnsafeName(f"expected the name of a file, received {name!r:.80}")
    if not name or name in (".", "..") or "/" in name or "\\" in name or _DRIVE.match(name):
        raise UnsafeName(f"{name!r:.80} is no name of a file in this directory")
    if any(ord(letter) < 32 or ord(letter) == 127 or "\ud800" <= letter <= "\udfff" for letter in name):
        raise UnsafeName(f"{name!r:.80} has letters that no name of a file has")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise UnsafeName(f"{name!r:.80}… is longer than the name of a file can be")
    return name


def check_relative_path(path: str) -> str:
    """Returns `path` if it leads to a file below a directory. Raises UnsafeName."""
    if not isinstance(path, str):
        raise UnsafeName(f"expected the path of a file, received {path!r:.80}")
    for name in path.split("/"):
        try:
            check_file_name(name)
        except UnsafeName as exc:
            raise UnsafeName(f"{path!r:.80} is no path of a file below this directory") from exc
    return path


def safe_join(directory: Path, path: str) -> Path:
    """Joins `directory` and `path`; the result is below `directory` even through links. Raises UnsafeName."""
    joined = directory / check_relative_path(path)
    if not joined.resolve().is_relative_to(directory.resolve()):
        raise UnsafeName(f"{joined} is a link that leads out of {directory}")
    return joined


FileName = Annotated[str, AfterValidator(check_file_name)]
