"""Requests to an object store: transient errors are retried for a bounded time, others raise at once."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from elasticdl import watchdog
from elasticdl.errors import SpecError, StoreUnavailable
from elasticdl.retry import retry_call
from elasticdl.storage.schemes import SCHEMES, transient_errors

RETRY_S = 60.0
_TRANSIENT_STATUS = (408, 409, 425, 429)  # and all from 500 on
_PERMANENT_ERRNO = frozenset(
    {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENAMETOOLONG, errno.ENOSYS, errno.EMSGSIZE, errno.EEXIST}
)

_log = logging.getLogger(__name__)

T = TypeVar("T")


def retry_request(
    attempt: Callable[[], T],
    address: str,
    scheme: str,
    retry_s: float = RETRY_S,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> T:
    """Returns what `attempt` returns, retried for `retry_s` seconds while the store does not answer as it should.

    Raises FileNotFoundError if the object does not exist, SpecError if the store refuses the request permanently, and
    StoreUnavailable when time is up. An `OSError` of the local disk is raised unchanged.
    """

    def log_wait(error: Exception, remaining_s: float) -> None:
        problem = _describe_error(error)
        _log.warning("%s: the store does not answer, trying again for %.0f s: %s", address, remaining_s, problem)

    def sleep(delay_s: float) -> None:
        with watchdog.pause_watchdog(f"waits for {address}, which does not answer"):
            wait(delay_s)

    def can_retry(error: Exception) -> bool:
        return not _is_answer(error) and is_transient(error, scheme)

    try:
        return retry_call(attempt, can_retry, retry_s, clock=clock, sleep=sleep, on_wait=log_wait)
    except Exception as exc:
        if _is_answer(exc):
            raise
        if not is_transient(exc, scheme):
            raise store_refusal(address, scheme, exc) from exc
        raise StoreUnavailable(
            f"{address}: the store did not answer for {retry_s:g} s: {_describe_error(exc)}"
        ) from exc


def _is_answer(error: Exception) -> bool:
    """Whether the store works: the requested object does not exist, or the local disk fails."""
    is_missing = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError | SpecError)
    return is_missing or is_local_disk_error(error)


def is_transient(exc: Exception, scheme: str) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(exc, TimeoutError | ConnectionError):
        return True
    status = _http_status(exc)
    if status is not None:
        return status >= 500 or status in _TRANSIENT_STATUS
    if isinstance(exc, OSError):
        return not isinstance(exc, PermissionError | FileExistsError) and exc.errno not in _PERMANENT_ERRNO
    return isinstance(exc, transient_errors(scheme))


def is_local_disk_error(exc: Exception) -> bool:
    """Whether the local disk failed: such an error names one of its files."""
    return isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def store_refusal(address: str, scheme: str, exc: Exception) -> SpecError:
    """The error of a request that the store refuses, with hints for the fix."""
    return SpecError(
        f"{address}: the store refuses it: {_describe_error(exc)}; check the address, the permissions there, and the "
        f"environment of the job: {SCHEMES[scheme].variables}"
    )


def _http_status(exc: BaseException | None) -> int | None:
    """The HTTP status behind an error of one of the three packages."""
    while exc is not None:
        answer = getattr(exc, "response", None)
        if isinstance(answer, dict):
            answer = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        for status in (answer, getattr(exc, "status_code", None), getattr(exc, "status", None), _code(exc)):
            if isinstance(status, int) and 100 <= status < 600:
                return status
        exc = exc.__cause__
    return None


def _code(exc: BaseException) -> int | None:
    code = getattr(exc, "code", None)
    return int(code) if isinstance(code, int | str) and str(code).isdecimal() else None


def _describe_error(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
