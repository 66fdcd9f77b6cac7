"""Whether a store lets a job read and write, asked before anything is launched."""

from __future__ import annotations

import secrets

from elasticdl.errors import SpecError, StoreUnavailable
from elasticdl.storage import schemes
from elasticdl.storage.paths import StorePath

PROBE_S = 10.0  # for how long a store that does not answer is asked again before launch
_CONTENT = b"elasticdl: may this place be written? This object can be removed.\n"


def check_writable(place: StorePath, what: str) -> None:
    """Write, read and delete a small object below `place`; SpecError where one of them fails. `what` names the option.

    The object's name begins with a dot, so that nobody takes it for data.
    """
    probe = place / f".elasticdl-probe-{secrets.token_hex(4)}"
    try:
        probe.write_bytes(_CONTENT)
        content = probe.read_bytes()
        probe.unlink()
    except FileNotFoundError as exc:
        raise SpecError(f"{what}: {_missing_bucket_message(place)}") from exc
    except (StoreUnavailable, SpecError) as exc:
        raise SpecError(f"{what}: {exc}") from exc
    if content != _CONTENT:
        raise SpecError(f"{what}: {place} does not give back what was written there: {len(content)} bytes")


def check_readable(place: StorePath, what: str) -> None:
    """SpecError where there is nothing below `place`, or it may not be listed."""
    try:
        is_there = place.is_dir()
    except (StoreUnavailable, SpecError) as exc:
        raise SpecError(f"{what}: {exc}") from exc
    if not is_there:
        raise SpecError(f"{what}: there is nothing at {place}; check the bucket and the prefix")


def _missing_bucket_message(place: StorePath) -> str:
    bucket = place.key.partition("/")[0]
    return (
        f"there is no bucket {bucket!r} for {place}; make it, name another, or check the environment: "
        f"{schemes.SCHEMES[place.scheme].variables}"
    )
