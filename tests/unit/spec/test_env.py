from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import SpecError
from elasticdl.launcher.replica_environ import inherited_environ
from elasticdl.spec import PsId, WorkerId
from elasticdl.spec.env import PsEnv, WorkerEnv


def test_a_ps_finds_out_who_it_is_from_what_it_was_started_with() -> None:
    env = PsEnv(Path("/jobs/ctr"), PsId("ps-3"), "127.0.0.1", 2, faults="ps-3@2:assigned=SIGKILL")

    assert PsEnv.from_environ(env.to_environ()) == env


def test_a_ps_that_is_started_by_hand_says_what_is_missing() -> None:
    with pytest.raises(SpecError, match="ELASTICDL_PS is not set: a ps is started by the launcher"):
        PsEnv.from_environ({"ELASTICDL_JOB_DIRECTORY": "/jobs/ctr", "ELASTICDL_ADDRESS": "127.0.0.1"})


def test_the_run_of_a_worker_is_a_number() -> None:
    env = WorkerEnv(Path("/jobs/ctr"), WorkerId("worker-3"), "127.0.0.1", 4)

    assert WorkerEnv.from_environ(env.to_environ()).run == 4
    with pytest.raises(SpecError, match="ELASTICDL_RUN: expected the number of a run of the job, received 'first'"):
        WorkerEnv.from_environ(env.to_environ() | {"ELASTICDL_RUN": "first"})


def test_who_a_ps_is_is_never_inherited() -> None:
    env = PsEnv(Path("/jobs/ctr"), PsId("ps-3"), "127.0.0.1", 2)

    assert inherited_environ({**env.to_environ(), "HOME": "/root"}) == {"HOME": "/root"}
