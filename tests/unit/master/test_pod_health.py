"""What a kubelet is told of a master: whether its loop goes round."""

from __future__ import annotations

from elasticdl.master.pods import SILENCE_S, health


def test_a_loop_that_turns_is_well_and_one_that_does_not_is_ended() -> None:
    assert health("/healthz", 0.2).status == 200
    assert health("/healthz", SILENCE_S).status == 200

    stuck = health("/healthz", SILENCE_S + 1)

    assert stuck.status == 503 and stuck.body == b"the master's loop has had no turn for 181 s\n"
    assert health("/", 0.2).status == 404


def test_a_journal_that_waits_for_the_api_server_is_not_taken_for_a_loop_that_stands_still() -> None:
    from inspect import signature

    from elasticdl.kube.journal import ApiJournal

    assert 2 * signature(ApiJournal).parameters["timeout_s"].default <= SILENCE_S
