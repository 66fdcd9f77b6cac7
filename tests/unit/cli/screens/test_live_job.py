"""The terminal that shows a job."""

from __future__ import annotations

import io
import os
import pty
import sys
import termios

import pytest
from rich.console import Console

from elasticdl.cli.screens.live_job import JobScreen


def is_echoing_keys(descriptor: int) -> bool:
    return bool(termios.tcgetattr(descriptor)[3] & termios.ECHOCTL)


def test_a_terminal_does_not_echo_keys_while_a_job_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(leader), os.fdopen(follower, "r+b", buffering=0) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = is_echoing_keys(follower)

        with JobScreen.open(Console(file=io.StringIO(), force_terminal=True)):
            during = is_echoing_keys(follower)

        assert (before, during, is_echoing_keys(follower)) == (True, False, True)


def test_a_job_is_shown_even_if_stdin_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    shown = io.StringIO()

    with JobScreen.open(Console(file=shown, force_terminal=True, width=80)) as screen:
        screen.show_master_away(False, "its master waits: Unschedulable")

    assert "master starting… (its master waits: Unschedulable)" in shown.getvalue()
