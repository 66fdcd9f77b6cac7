from __future__ import annotations

from elasticdl.scheduler.local.waits import Running, Waiting, expected


def test_those_ahead_take_what_becomes_free_first() -> None:
    running = [Running("a", 2, 60.0), Running("b", 2, 30.0)]

    assert expected(0, running, [Waiting("c", 2), Waiting("d", 1)]) == {"c": 30.0, "d": 60.0}


def test_nobody_can_say_when_a_job_in_the_way_does_not_know_its_end() -> None:
    assert expected(1, [Running("a", 2, None)], [Waiting("c", 2)]) == {"c": None}


def test_what_is_free_already_is_no_wait() -> None:
    assert expected(2, [], [Waiting("c", 2)]) == {"c": 0.0}


def test_nobody_grows_by_its_own_end() -> None:
    running = [Running("a", 2, 5.0), Running("b", 1, 9.0)]

    assert expected(0, running, [Waiting("a", 1), Waiting("c", 2)]) == {"a": None, "c": 5.0}
