"""The health probe of a master: whether its loop runs."""

from __future__ import annotations

from elasticdl.master.kubernetes.backend import MAX_LOOP_SILENCE_S, answer_probe


def test_a_loop_without_a_turn_for_too_long_fails_the_probe() -> None:
    assert answer_probe("/healthz", 0.2).status == 200
    assert answer_probe("/healthz", MAX_LOOP_SILENCE_S).status == 200

    stuck = answer_probe("/healthz", MAX_LOOP_SILENCE_S + 1)

    assert stuck.status == 503 and stuck.body == b"the master's loop has had no turn for 181 s\n"
    assert answer_probe("/", 0.2).status == 404


def test_a_journal_that_waits_for_the_api_server_does_not_fail_the_probe() -> None:
    from inspect import signature

    from elasticdl.master.kubernetes.journal import ConfigMapJournal

    assert 2 * signature(ConfigMapJournal).parameters["timeout_s"].default <= MAX_LOOP_SILENCE_S
