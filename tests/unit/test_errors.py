"""Whose fault an error is."""

from __future__ import annotations

import errno

import pytest

from elasticdl.errors import DataError, ModelError, PermanentError, SpecError, is_job_error, is_machine_error


def raised(cause: Exception) -> SpecError:
    try:
        try:
            raise cause
        except Exception as exc:
            raise ModelError("optimizer failed") from exc
    except ModelError as found:
        return found


@pytest.mark.parametrize("cause", [OSError(errno.EMFILE, ""), OSError(errno.EIO, ""), MemoryError()])
def test_a_function_that_found_no_descriptor_or_memory_is_not_wrong(cause: Exception) -> None:
    assert is_machine_error(raised(cause))
    assert not is_job_error(raised(cause))


@pytest.mark.parametrize(
    "cause", [ValueError(), FileNotFoundError(errno.ENOENT, ""), PermissionError(errno.EACCES, "")]
)
def test_any_other_error_is_the_jobs_own(cause: Exception) -> None:
    assert not is_machine_error(raised(cause))
    assert not is_machine_error(DataError("wrong"))
    assert is_job_error(DataError("wrong")) and not is_job_error(PermanentError("no use"))
