"""What is tried again, and for how long."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from elasticdl.errors import SpecError, StoreUnavailable
from elasticdl.storage.retrying import is_transient, retry_request


class Clock:
    """Moves only when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = [times]

    def attempt() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return "answer"

    return attempt


def ask(attempt: Callable[[], str], clock: Clock, retry_s: float = 60.0) -> str:
    return retry_request(attempt, "s3://bucket/x", "s3", retry_s, clock=clock, wait=clock.wait)


class HttpError(Exception):
    """As those of gcsfs and Azure: the status is an attribute."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


def test_each_wait_is_longer_than_the_one_before_up_to_a_bound() -> None:
    clock = Clock()

    assert ask(failing(9, OSError(errno.EBUSY, "SlowDown")), clock) == "answer"
    assert clock.waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])


def test_time_runs_out() -> None:
    clock = Clock()

    with pytest.raises(StoreUnavailable, match=r"s3://bucket/x: the store did not answer for 7 s: .*SlowDown"):
        ask(failing(1000, OSError(errno.EBUSY, "SlowDown")), clock, retry_s=7.0)
    assert clock.now == pytest.approx(7.0)


@pytest.mark.parametrize(
    "error",
    [PermissionError("Access Denied"), OSError(errno.EINVAL, "InvalidBucketName"), HttpError(403), ValueError()],
)
def test_what_is_refused_for_good_is_told_at_once_with_the_environment(error: Exception) -> None:
    clock = Clock()

    with pytest.raises(SpecError, match="AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"):
        ask(failing(1, error), clock)
    assert clock.waits == []


def test_what_is_not_there_is_told_at_once_and_as_it_is() -> None:
    with pytest.raises(FileNotFoundError):
        ask(failing(1, FileNotFoundError("x")), Clock())


def test_a_full_disk_of_this_machine_is_not_the_stores_fault() -> None:
    clock = Clock()

    with pytest.raises(OSError, match="No space"):
        ask(failing(1, OSError(errno.ENOSPC, "No space left on device")), clock)
    assert clock.waits == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HttpError(503), True),
        (HttpError(500), True),
        (HttpError(429), True),
        (HttpError(401), False),
        (HttpError(400), False),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (OSError(errno.EREMOTEIO, "InternalError"), True),
        (KeyError("bug"), False),
    ],
)
def test_the_kind_of_an_error_says_whether_it_may_pass(error: Exception, expected: bool) -> None:
    assert is_transient(error, "s3") is expected
