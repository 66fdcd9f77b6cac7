"""The master as a process over real sockets: joins, losses, its own death."""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import AccessDenied, RunSuperseded, SpecError
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import DataSpec, JobKind, JobSpec, ModelSpec, WorkersSpec
from elasticdl.spec.directory import JobDirectory, read_json, write_private_file
from tests.integration.master_process import PATIENCE_S, FakeLauncher, FakeWorker, wait_until


def make_job(root: Path, kind: JobKind = JobKind.TRAINING, workers: int = 2) -> JobDirectory:
    directory = JobDirectory(root / "job")
    directory.create(
        JobSpec(
            name="job",
            kind=kind,
            model=ModelSpec(definition="a.b.c"),
            workers=WorkersSpec(replicas=workers, max=workers + 1),
            data=DataSpec(shard_records=10),
        )
    )
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    return make_job(tmp_path)


@pytest.fixture
def launcher(directory: JobDirectory) -> Iterator[FakeLauncher]:
    launcher = FakeLauncher(directory)
    yield launcher
    launcher.close()


@pytest.fixture
def client(directory: JobDirectory, launcher: FakeLauncher) -> Iterator[MasterClient]:
    with MasterClient.connect(directory, PATIENCE_S) as client:
        yield client


@pytest.fixture
def pair(directory: JobDirectory, launcher: FakeLauncher) -> Iterator[tuple[FakeWorker, FakeWorker]]:
    """Two workers that have entered the first round."""
    workers = FakeWorker(directory, "worker-0"), FakeWorker(directory, "worker-1")
    for worker in workers:
        wait_until(lambda worker=worker: launcher.launched(worker.name), "both are launched")  # type: ignore[misc]
        worker.say(ready=pb.Ready())
    for worker in workers:
        worker.enter(1)
    yield workers
    for worker in workers:
        worker.vanish()


def kinds(directory: JobDirectory) -> list[str]:
    return [json.loads(line)["kind"] for line in directory.events.read_text().splitlines()]


def test_workers_join_and_a_killed_one_is_replaced(
    launcher: FakeLauncher, client: MasterClient, pair: tuple[FakeWorker, FakeWorker]
) -> None:
    first, second = pair
    wait_until(lambda: client.status().round == 1, "the first round is entered")

    second.vanish()
    launcher.exit("worker-1", signal=9)

    wait_until(lambda: first.rounds()[-1].id == 2, "a forced round follows")
    assert first.rounds()[-1].forced
    assert [member.worker for member in first.rounds()[-1].members] == ["worker-0"]
    wait_until(lambda: launcher.launched("worker-2"), "a replacement is launched")


def test_a_killed_master_restarts_with_its_state(
    directory: JobDirectory, launcher: FakeLauncher, client: MasterClient, pair: tuple[FakeWorker, FakeWorker]
) -> None:
    wait_until(lambda: client.status().round == 1, "the first round is entered")
    before = read_json(directory.master)

    launcher.restart_master()
    status = client.status()
    wait_until(lambda: [worker.kinds().count("welcome") for worker in pair] == [2, 2], "both are back")

    after = read_json(directory.master)
    assert before is not None and after is not None
    assert after["address"] == before["address"]
    assert (status.phase, status.round) == ("running", 1)
    assert [worker.state for worker in status.workers] == ["member", "member"]
    assert all(len(worker.rounds()) == 1 for worker in pair), "nobody is asked to enter a round again"
    assert Counter(kinds(directory)) == Counter(
        ["started", *["worker-launched"] * 2, *["worker-joined"] * 2, "round-entered", "master-restarted"]
    )


def test_messages_sent_while_the_master_is_away_take_effect_once(
    directory: JobDirectory, launcher: FakeLauncher, client: MasterClient, pair: tuple[FakeWorker, FakeWorker]
) -> None:
    first, _ = pair
    for step in (10, 20, 30):
        first.say(checkpoint=pb.CheckpointWritten(step=step, path=f"/c/{step}"))
        launcher.restart_master()
    first.say(checkpoint=pb.CheckpointWritten(step=40, path="/c/40"))

    wait_until(lambda: client.status().checkpoint_step == 40, "all checkpoints are known")
    lines = [json.loads(line) for line in directory.events.read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "checkpoint"] == [10, 20, 30, 40]


def test_training_ends_with_a_result_and_the_launcher_is_notified(
    directory: JobDirectory, launcher: FakeLauncher, pair: tuple[FakeWorker, FakeWorker]
) -> None:
    for worker in pair:
        worker.say(finished=pb.Finished(step=100, records=800, reason="all steps are done"))
    wait_until(lambda: "export" in pair[0].kinds(), "the first is asked for the last checkpoint")
    pair[0].say(exported=pb.Exported())
    for worker in pair:
        wait_until(lambda worker=worker: "release" in worker.kinds(), "all are released")  # type: ignore[misc]
        assert worker.session.close("released", timeout_s=PATIENCE_S)
        launcher.exit(worker.name, code=0)

    assert launcher.master.wait(PATIENCE_S) == 0
    result = read_json(directory.result)
    assert result is not None
    assert (result["phase"], result["step"], result["records"], result["workers_joined"]) == ("succeeded", 100, 800, 2)
    assert kinds(directory)[-2:] == ["worker-left", "worker-left"]
    wait_until(lambda: bool(launcher.commands) and launcher.commands[-1]["command"] == "end", "the launcher knows")
    assert launcher.commands[-1]["exit_code"] == 0


def test_a_watcher_sees_the_job_end(
    launcher: FakeLauncher, client: MasterClient, pair: tuple[FakeWorker, FakeWorker]
) -> None:
    phases = []
    for status in client.watch(max_hz=50):
        phases.append(status.phase)
        if status.phase == "running" and len(phases) == 1:
            with MasterClient.connect(launcher.directory, PATIENCE_S) as stopper:
                assert "at once" in stopper.stop(at_once=True, reason="enough")

    assert (phases[0], phases[-1]) == ("running", "stopped")


def test_scaling_is_refused_outside_the_bounds_and_accepted_within(
    launcher: FakeLauncher, client: MasterClient
) -> None:
    with pytest.raises(SpecError, match=r"expected 1 to 3 .* received 9"):
        client.scale(9)

    assert client.scale(3) == "scaling from 2 to 3 workers"
    wait_until(lambda: launcher.launched("worker-2"), "the third is launched")


def test_a_wrong_token_is_refused(directory: JobDirectory, launcher: FakeLauncher, client: MasterClient) -> None:
    client.status()
    write_private_file(directory.token, "not the token")

    with MasterClient.connect(directory, PATIENCE_S) as stranger, pytest.raises(AccessDenied):
        stranger.stop(at_once=True, reason="")
    with MasterClient.connect(directory, PATIENCE_S) as stranger, pytest.raises(AccessDenied):
        stranger.status()


def test_a_worker_of_an_earlier_run_is_refused_and_told_to_end(
    directory: JobDirectory, launcher: FakeLauncher, client: MasterClient
) -> None:
    client.status()
    late = FakeWorker(directory, "worker-0", run=directory.run_number + 1)
    try:
        wait_until(lambda: late.superseded_error is not None, "it is refused")
    finally:
        late.vanish()

    assert "the job is in run 1, and this process belongs to another run: it must end" in str(late.superseded_error)
    assert late.heard == []
    with MasterClient.connect(directory, PATIENCE_S, directory.run_number + 1) as taker, pytest.raises(RunSuperseded):
        taker.exchange(pb.ExchangeRequest(worker="worker-0", max_leases=1, request=1))
    with MasterClient.connect(directory, PATIENCE_S) as nobody, pytest.raises(RunSuperseded):
        nobody.exchange(pb.ExchangeRequest(worker="worker-0", max_leases=1, request=1))


def test_a_taken_port_makes_the_master_choose_another(directory: JobDirectory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        write_private_file(directory.master, json.dumps({"address": f"127.0.0.1:{port}", "pid": 0}))
        launcher = FakeLauncher(directory)
        try:
            wait_until(lambda: (read_json(directory.master) or {})["pid"] != 0, "it listens")
            with MasterClient.connect(directory, PATIENCE_S) as client:
                assert client.status().phase == "pending"
        finally:
            launcher.close()


def test_leases_are_never_doubled_although_the_master_is_killed_repeatedly(tmp_path: Path) -> None:
    directory = make_job(tmp_path, JobKind.PREDICTION)
    launcher = FakeLauncher(directory)
    workers = [FakeWorker(directory, f"worker-{number}") for number in range(2)]
    done: list[int] = []
    try:
        for worker in workers:
            wait_until(lambda worker=worker: launcher.launched(worker.name), "launched")  # type: ignore[misc]
            worker.say(ready=pb.Ready())
            worker.say(data_plan=pb.DataPlan(total_records=3000))
        takers = [threading.Thread(target=_take_all, args=(directory, worker.name, done)) for worker in workers]
        for taker in takers:
            taker.start()
        for _ in range(3):
            progress = len(done)
            wait_until(lambda progress=progress: len(done) > progress + 10, "leases flow")  # type: ignore[misc]
            launcher.restart_master()
        for taker in takers:
            taker.join(PATIENCE_S)
        wait_until(directory.result.exists, "the job is over")
    finally:
        for worker in workers:
            worker.vanish()
        launcher.close()

    assert sorted(done) == list(range(300)), "every shard once"
    result = read_json(directory.result)
    assert result is not None
    assert (result["phase"], result["records"], result["master_restarts"]) == ("succeeded", 3000, 3)


def _take_all(directory: JobDirectory, name: str, done: list[int]) -> None:
    with MasterClient.connect(directory, PATIENCE_S, directory.run_number) as client:
        request, reports = 0, list[pb.LeaseReport]()
        while not directory.result.exists():
            request += 1
            reply = client.exchange(pb.ExchangeRequest(worker=name, request=request, reports=reports, max_leases=2))
            reports = [pb.LeaseReport(lease=x.id, done=x.stop - x.start, finished=True) for x in reply.leases]
            done += [lease.shard for lease in reply.leases]
            if reply.drained:
                return


def test_a_session_survives_files_that_cannot_be_opened(
    directory: JobDirectory, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_token, refused = JobDirectory.load_token, list[Any]()

    def try_to_load(self: JobDirectory) -> str:
        if len(refused) < 3:
            refused.append(self)
            raise OSError(errno.EMFILE, "Too many open files")
        return load_token(self)

    monkeypatch.setattr(JobDirectory, "load_token", try_to_load)
    worker = FakeWorker(directory, "worker-0")
    worker.say(ready=pb.Ready())

    wait_until(lambda: bool(worker.heard), "the master is heard")
    assert len(refused) == 3
    worker.vanish()
