from __future__ import annotations

import os
import re
import signal
from typing import get_args

import pytest

from elasticdl.errors import SpecError
from elasticdl.faults import Fault, Faults, InjectedFault, Moment


def test_a_worker_gets_its_own_faults_only() -> None:
    text = "worker-1@20:reduced=SIGKILL,worker-0@3:begin=SIGTERM,worker-1@30:applied=SIGSTOP"

    assert Faults.parse(text, "worker-1").faults == (
        Fault("worker-1", 20, "reduced", signal.SIGKILL),
        Fault("worker-1", 30, "applied", signal.SIGSTOP),
    )
    assert Faults.parse("", "worker-1").faults == ()


def test_a_fault_is_formatted_as_it_is_parsed() -> None:
    fault = Fault("worker-1", 20, "reduced", signal.SIGKILL)

    assert Faults.parse(str(fault), "worker-1").faults == (fault,)


@pytest.mark.parametrize(
    "text",
    ["worker-1", "worker-1@x:begin=SIGKILL", "worker-1@1:later=SIGKILL", "worker-1@1:begin=SIGNOTHING", "@1:begin=9"],
)
def test_a_malformed_fault_is_refused_for_every_worker(text: str) -> None:
    moments = "|".join(get_args(Moment))
    with pytest.raises(SpecError, match=re.escape(f"expected REPLICA@STEP:{moments}=SIGNAL")):
        Faults.parse(text, "worker-0")


def test_a_fault_strikes_at_its_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: struck.append((pid, number)))
    faults = Faults.parse("w@5:computed=SIGTERM", "w")
    faults.inject(5, "begin")
    faults.inject(4, "computed")
    assert struck == []

    faults.inject(5, "computed")

    assert struck == [(os.getpid(), signal.SIGTERM)]


def test_a_thread_fails_if_a_fault_names_it() -> None:
    text = "worker-1/elasticdl-saver=raise,worker-1@3:begin=SIGTERM,worker-0/door=raise"
    faults = Faults.parse(text, "worker-1")

    faults.inject_in_thread("door")
    with pytest.raises(InjectedFault, match="in elasticdl-saver"):
        faults.inject_in_thread("elasticdl-saver")
    assert faults.faults == (Fault("worker-1", 3, "begin", signal.SIGTERM),)
