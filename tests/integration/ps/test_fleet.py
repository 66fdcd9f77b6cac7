"""Jobs with ps, as processes: the fleet grows and shrinks, ps and master die, rows follow their slots."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.slots import SLOTS, SlotMap
from elasticdl.ps.tables.table import TableSpec
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import PsId
from tests.integration.job import Job, Jobs

TABLE = TableSpec(name="users", columns=4)
IDS = np.arange(500, dtype=np.int64)


def serving(status: pb.JobStatus) -> dict[str, pb.PsStatus]:
    return {ps.id: ps for ps in status.ps if ps.state == "serving"}


def wait_serving(job: Job, count: int, without: str = "") -> dict[str, pb.PsStatus]:
    """Waits until exactly `count` ps own all slots with the same map version; `without` is not one of them."""

    def is_so(status: pb.JobStatus) -> bool:
        servers = serving(status)
        living = [ps for ps in status.ps if ps.state not in ("left", "lost")]
        shares = [ps.slots for ps in servers.values()]
        versions = {ps.heartbeat.map_version for ps in servers.values()}
        is_even = sum(shares) == SLOTS and max(shares) - min(shares) <= 1
        return len(servers) == len(living) == count and is_even and len(versions) == 1 and without not in servers

    return serving(job.wait(is_so, f"{count} ps hold all slots"))


def scale_ps(job: Job, count: int) -> None:
    done = job.command("scale", job.name, "--ps", str(count))
    assert done.returncode == 0, done.stderr
    assert f"to {count} ps" in done.stdout


@contextmanager
def client_of(job: Job, ps: dict[str, pb.PsStatus]) -> Iterator[PsClient]:
    """A client that knows where the ps are; who holds what they tell it."""
    first = PsId(next(iter(ps)))
    fleet = FleetView(SlotMap(0, (first,) * SLOTS), {PsId(name): server.address for name, server in ps.items()}, {})
    client = PsClient(fleet, job.directory.load_token(), 30.0).open()
    try:
        client.declare([TABLE])
        yield client
    finally:
        client.close()


def pull(client: PsClient) -> np.ndarray:
    plans = {"users": client.plan(IDS)}
    rows = client.finish_pull(plans, client.begin_pull(plans))["users"]
    return rows[plans["users"].inverse]


def push(client: PsClient, number: int) -> None:
    plans = {"users": client.plan(IDS)}
    ones = np.ones((len(plans["users"].ids), TABLE.columns), np.float32)
    pending = client.begin_push(plans, {"users": ones}, sender=1, number=number, rate=0.1, step=number)
    assert client.finish_push(pending)


def test_the_fleet_grows_and_shrinks_while_the_job_trains(jobs: Jobs) -> None:
    job = jobs.train("grows", 1, "--num_ps_pods=2", slow=True, pause_s=0.05)
    wait_serving(job, 2)
    step = job.wait(lambda status: status.step > 0, "the first step").step

    scale_ps(job, 3)
    wait_serving(job, 3)
    scale_ps(job, 1)
    (last,) = wait_serving(job, 1)

    assert last == "ps-0", "the youngest leave first"
    assert job.wait(lambda status: status.step > step, "training goes on").phase == "running"
    job.hurry()
    assert job.result()["phase"] == "succeeded"
    job.wait_gone()
    kinds = job.kinds()
    assert kinds.count("ps-launched") == kinds.count("ps-serving") == 3
    assert kinds.count("ps-drained") == 2 and "ps-lost" not in kinds
    assert kinds.count("slots-moved") >= 4


def test_a_killed_ps_is_replaced_even_if_the_master_dies_meanwhile(jobs: Jobs) -> None:
    job = jobs.train("killed", 1, "--num_ps_pods=2", slow=True, pause_s=0.05)
    before = wait_serving(job, 2)
    killed_at = time.time()

    os.kill(before["ps-1"].pid, signal.SIGKILL)
    job.kill_master()
    after = wait_serving(job, 2, without="ps-1")

    assert sorted(after) == ["ps-0", "ps-2"]
    assert after["ps-0"].pid == before["ps-0"].pid
    assert "SIGKILL" in job.wait_event("ps-lost", killed_at)["reason"]
    assert job.wait_event("restored", killed_at)["replica"] == "ps-2"
    job.hurry()
    assert job.result()["phase"] == "succeeded"
    job.wait_gone()


@pytest.mark.slow
def test_a_preempted_ps_moves_its_slots_away_and_is_replaced(jobs: Jobs) -> None:
    job = jobs.train("preempted", 1, "--num_ps_pods=2", slow=True, pause_s=0.05)
    before = wait_serving(job, 2)

    os.kill(before["ps-0"].pid, signal.SIGTERM)
    after = wait_serving(job, 2, without="ps-0")

    assert sorted(after) == ["ps-1", "ps-2"]
    assert job.wait_event("ps-drained")["reason"] == "preempted: SIGTERM"
    assert not [kind for kind in job.kinds() if kind in ("ps-lost", "restored")]
    job.hurry()
    assert job.result()["phase"] == "succeeded"
    job.wait_gone()


@pytest.mark.slow
def test_rows_move_with_their_slots_and_a_loss_reports_how_many_updates_are_rolled_back(jobs: Jobs) -> None:
    job = jobs.train("rows", 1, "--num_ps_pods=2", slow=True, pause_s=0.05)
    with client_of(job, wait_serving(job, 2)) as client:
        initial = pull(client)
        for number in range(1, 8):
            push(client, number)
        expected = pull(client)
    scale_ps(job, 3)
    with client_of(job, wait_serving(job, 3)) as client:
        moved = pull(client)
        push(client, 8)
    lost = job.wait(lambda s: all(ps.heartbeat.applied for ps in serving(s).values()), "pushes at all ps").ps[2]
    os.kill(lost.pid, signal.SIGKILL)
    killed_at = time.time()

    restored = job.wait_event("restored")
    with client_of(job, wait_serving(job, 3)) as client:
        after = pull(client)

    assert not np.array_equal(initial, expected)
    assert np.array_equal(moved, expected), "rows changed on their way"
    assert "1 acknowledged updates are rolled back" in restored["reason"], "ps-2 has acknowledged one push"
    begun_anew = (after == initial).all(axis=1)
    assert 0 < begun_anew.sum() < len(IDS), "the rows of the lost ps, and no others, begin anew"
    assert (after[~begun_anew] != moved[~begun_anew]).all(), "the others have the last push"
    assert killed_at - restored["at"] < 60
    job.stop()
    job.wait_gone()


@pytest.mark.slow
def test_a_job_that_is_stopped_leaves_no_ps_behind(jobs: Jobs) -> None:
    job = jobs.train("stopped", 1, "--num_ps_pods=2", slow=True, pause_s=0.05)
    wait_serving(job, 2)
    job.wait(lambda status: status.step > 0, "the first step")

    job.stop()

    assert job.result()["phase"] == "stopped"
    job.wait_gone()
    assert job.document()["desired_ps"] == 2


@pytest.mark.slow
def test_with_a_backup_of_each_slot_a_killed_ps_loses_no_update(jobs: Jobs) -> None:
    job = jobs.train("replicas", 1, "--num_ps_pods=2", "--ps_backups=1", slow=True, pause_s=0.05)
    wait_serving(job, 2)
    ps = serving(job.wait(lambda s: all(ps.backup for ps in serving(s).values()), "copies of all slots"))
    with client_of(job, ps) as client:
        pull(client)
        for number in range(1, 8):
            push(client, number)
        expected = pull(client)

    os.kill(ps["ps-0"].pid, signal.SIGKILL)
    after = wait_serving(job, 2, without="ps-0")
    with client_of(job, after) as client:
        rows = pull(client)

    assert sorted(after) == ["ps-1", "ps-2"]
    assert np.array_equal(rows, expected)
    job.wait(lambda s: all(ps.backup for ps in serving(s).values()), "copies of all slots again")
    kinds = job.kinds()
    assert "promoted" in kinds and "restored" not in kinds
    job.stop()
    job.wait_gone()


def test_a_ps_that_hangs_is_killed_and_replaced(jobs: Jobs) -> None:
    job = jobs.train("hangs", 1, "--num_ps_pods=2", slow=True, pause_s=0.05)
    before = wait_serving(job, 2)

    os.kill(before["ps-1"].pid, signal.SIGSTOP)
    lost = job.wait_event("ps-lost")
    after = wait_serving(job, 2, without="ps-1")

    assert (lost["replica"], lost["reason"][:10]) == ("ps-1", "silent for")
    assert sorted(after) == ["ps-0", "ps-2"]
    assert "ps-1" not in job.living()
    job.stop()
    job.wait_gone()


def test_a_ps_without_descriptors_fails_its_task_and_continues(jobs: Jobs) -> None:
    job = jobs.train("descriptors", 1, "--num_ps_pods=1", slow=True, pause_s=0.05)
    (first,) = wait_serving(job, 1).values()
    job.wait(lambda status: status.step > 0, "the first step")
    before = resource.prlimit(first.pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{first.pid}/fd"))

    resource.prlimit(first.pid, resource.RLIMIT_NOFILE, (used, before[1]))
    scale_ps(job, 2)
    failure = job.wait_event("move-failed")
    resource.prlimit(first.pid, resource.RLIMIT_NOFILE, before)
    after = wait_serving(job, 2)

    assert "Too many open files" in failure["reason"]
    assert after["ps-0"].pid == first.pid
    job.hurry()
    assert job.result()["phase"] == "succeeded"
    job.wait_gone()
