"""Checks before launch that a store lets the job read and write."""

from __future__ import annotations

import secrets

from elasticdl.errors import SpecError, StoreUnavailable
from elasticdl.storage import schemes
from elasticdl.storage.paths import StorePath

PROBE_S = 10.0  # how long requests to a store are retried before launch
_CONTENT = b"elasticdl: may this place be written? This object can be removed.\n"


def check_writable(path: StorePath, option: str) -> None:
    """Writes, reads and deletes a small object below `path`. Raises SpecError, with `option`, if that fails.

    The object's name begins with a dot, so that it is not read as data.
    """
    probe = path / f".elasticdl-probe-{secrets.token_hex(4)}"
    try:
        probe.write_bytes(_CONTENT)
        content = probe.read_bytes()
        probe.unlink()
    except FileNotFoundError as exc:
        raise SpecError(f"{option}: {_missing_bucket_message(path)}") from exc
    except (StoreUnavailable, SpecError) as exc:
        raise SpecError(f"{option}: {exc}") from exc
    if content != _CONTENT:
        raise SpecError(f"{option}: {path} does not give back what was written there: {len(content)} bytes")


def check_readable(path: StorePath, option: str) -> None:
    """Raises SpecError if there is nothing below `path`, or it cannot be listed."""
    try:
        is_there = path.is_dir()
    except (StoreUnavailable, SpecError) as exc:
        raise SpecError(f"{option}: {exc}") from exc
    if not is_there:
        raise SpecError(f"{option}: there is nothing at {path}; check the bucket and the prefix")


def _missing_bucket_message(path: StorePath) -> str:
    bucket = path.key.partition("/")[0]
    return (
        f"there is no bucket {bucket!r} for {path}; make it, name another, or check the environment: "
        f"{schemes.SCHEMES[path.scheme].variables}"
    )
