"""How fast the master hands out leases, replays its journal, and how much memory a lease takes.

    python benchmarks/dispatch.py [--quick] [--json FILE]

The master runs on one core, its clients on another (where there are two). Its peer over the wire is a
naive queue behind the same gRPC server, in memory, without journal or state machine: the floor that the
wire itself sets. `want=1` is one call per lease; batched calls take 16 at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
from table import Row, show, write

from elasticdl.journal_frames import FrameEncoder, JournalWriterInfo
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.state_machine import StateMachine
from elasticdl.master.runtime import codec
from elasticdl.master.runtime.journal import FileJournal
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import methods, security
from elasticdl.rpc.server import MasterServer, ReplicaStream
from elasticdl.rpc.session import MasterSession
from elasticdl.spec import DataSpec, JobKind, JobSpec, ModelSpec, WorkerId, WorkersSpec
from elasticdl.spec.directory import JobDirectory, read_json, write_json

WORKERS = 16
BATCH = 16
WARM_UP_S = 2.0  # a master that just started still imports its views
SHARD_RECORDS = 100
NAIVE = "naive queue, same gRPC, no journal"


def create_job(root: Path, shards: int) -> JobDirectory:
    directory = JobDirectory(root)
    directory.create(
        JobSpec(
            name="dispatch",
            kind=JobKind.PREDICTION,
            model=ModelSpec(definition="none.none.none"),
            workers=WorkersSpec(replicas=1, max=WORKERS),
            data=DataSpec(shard_records=SHARD_RECORDS),
            log_level="WARNING",
        )
    )
    return directory


class NaiveQueue:
    """Leases from a counter: the least that any master must do."""

    def __init__(self) -> None:
        self._next = 0
        self._leased: set[int] = set()

    async def enroll(self, request: pb.EnrollRequest) -> pb.EnrollReply:
        return pb.EnrollReply()

    async def session(self, messages: AsyncIterator[pb.WorkerMessage], link: ReplicaStream) -> None:
        async for message in messages:
            if message.sequence:
                link.send(pb.MasterMessage(acknowledged=pb.Acknowledged(sequence=message.sequence)))

    async def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply:
        for report in request.reports:
            self._leased.discard(report.lease)
        reply = pb.ExchangeReply()
        for _ in range(request.max_leases):
            self._next += 1
            self._leased.add(self._next)
            start = self._next * SHARD_RECORDS
            reply.leases.add(id=self._next, shard=self._next, start=start, stop=start + SHARD_RECORDS)
        return reply

    async def watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.JobStatus]:
        yield pb.JobStatus()

    async def scale(self, request: pb.ScaleRequest) -> pb.Accepted:
        return pb.Accepted()

    async def stop(self, request: pb.StopRequest) -> pb.Accepted:
        return pb.Accepted()


async def serve_naive(root: Path) -> None:
    directory = JobDirectory(root)
    server = MasterServer(NaiveQueue(), directory.load_spec(), directory.load_token(), directory.run_number, None)
    address = await server.start()
    write_json(directory.master, {"address": address, "pid": os.getpid()})
    await asyncio.Event().wait()


def pin(core: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


def cpu_s(pid: int) -> float:
    """Returns the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_server(argv: list[str], want: int, seconds: float) -> tuple[float, float]:
    """Runs a server on its own core. Returns leases per second, and per second of its processor time."""
    with tempfile.TemporaryDirectory() as root:
        directory = create_job(Path(root) / "job", shards=10**9)
        server = subprocess.Popen([*argv, str(directory.root)], preexec_fn=lambda: pin(0))
        sessions: list[MasterSession] = []
        try:
            while read_json(directory.master) is None:
                if server.poll() is not None:
                    raise SystemExit(f"error: {shlex.join(argv)} ended with {server.returncode} before it served")
                time.sleep(0.01)
            for number in range(WORKERS):
                sessions.append(_open_session(directory, number))
            return asyncio.run(_measure_rate(directory, server.pid, want, seconds))
        finally:
            for session in sessions:
                session.abort()
            server.kill()
            server.wait()


def _open_session(directory: JobDirectory, number: int) -> MasterSession:
    session = MasterSession(
        directory,
        directory.load_spec(),
        lambda: pb.Hello(replica=f"worker-{number}", pid=number + 1),
        pb.Heartbeat,
        lambda message: None,
        run=directory.run_number,
        on_run_superseded=lambda exc: None,
    )
    session.start()
    session.send(pb.WorkerMessage(ready=pb.Ready()))
    session.send(pb.WorkerMessage(data_plan=pb.DataPlan(total_records=SHARD_RECORDS * 10**9)))
    return session


async def _measure_rate(directory: JobDirectory, server_pid: int, want: int, seconds: float) -> tuple[float, float]:
    document = read_json(directory.master)
    assert document is not None
    async with grpc.aio.insecure_channel(document["address"]) as channel:
        call = methods.EXCHANGE.bind(channel)
        metadata = security.call_metadata(directory.load_token(), directory.run_number)
        leases_by_worker = [0] * WORKERS
        deadlines = [0.0]

        async def take_leases(number: int) -> None:
            request, reports = 0, list[pb.LeaseReport]()
            while not deadlines[0] or time.perf_counter() < deadlines[0]:
                request += 1
                message = pb.ExchangeRequest(
                    worker=f"worker-{number}", reports=reports, max_leases=want, request=request
                )
                reply = await call(message, metadata=metadata)
                reports = [pb.LeaseReport(lease=x.id, done=SHARD_RECORDS, finished=True) for x in reply.leases]
                leases_by_worker[number] += len(reports)

        tasks = [asyncio.create_task(take_leases(number)) for number in range(WORKERS)]
        while min(leases_by_worker) == 0:  # until every worker has had leases
            await asyncio.sleep(0.01)
        await asyncio.sleep(WARM_UP_S)
        started_at, leases_before, server_cpu_s = time.perf_counter(), sum(leases_by_worker), cpu_s(server_pid)
        deadlines[0] = started_at + seconds
        await asyncio.gather(*tasks)
        lease_count = sum(leases_by_worker) - leases_before
        return lease_count / (time.perf_counter() - started_at), lease_count / (cpu_s(server_pid) - server_cpu_s)


def load_spec(shards: int) -> JobSpec:
    with tempfile.TemporaryDirectory() as root:
        return create_job(Path(root) / "job", shards).load_spec()


def run_leases(machine: StateMachine, shards: int, leases: int) -> list[bytes]:
    """Takes and finishes `leases` shards one after another; returns the events as the journal has them."""
    worker = WorkerId("worker-0")
    opening: list[ev.Event] = [
        ev.MasterStarted(1),
        ev.WorkerConnected(worker, 1, "", "", "", 0, -1, False, False),
        ev.WorkerReady(worker, 1),
        ev.DataPlanReported(worker, 2, 0, shards * SHARD_RECORDS, 0, 0, 0),
    ]
    payloads = []
    for event in opening:
        machine.handle(event, 1.0)
        payloads.append(codec.encode_event(event, 1.0))
    for number in range(1, leases + 1):
        reports = (ev.LeaseReport(number - 1, SHARD_RECORDS, True, "", ()),) if number > 1 else ()
        exchange = ev.ExchangeReceived(worker, number, reports, 1, ())
        machine.handle(exchange, 1.0 + number)
        payloads.append(codec.encode_event(exchange, 1.0 + number))
    return payloads


def measure_replay(leases: int) -> tuple[float, float]:
    """Returns the seconds to replay a journal of `leases` leases, and those to read and parse the records only."""
    spec = load_spec(leases)
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "journal"
        encoder = FrameEncoder(JournalWriterInfo(run=1))
        frames = [encoder.begin_stream()]
        frames += [encoder.encode_records([payload]) for payload in run_leases(StateMachine(spec), leases + 1, leases)]
        path.write_bytes(b"".join(frames))
        started_at = time.perf_counter()
        machine = StateMachine(spec)
        for payload in FileJournal(path, run=1).replay():
            event, at = codec.decode_event(payload)
            machine.handle(event, at)
        replay_s = time.perf_counter() - started_at
        assert machine.state.ledger.evaluations.open[0].queue.finished == leases - 1
        started_at = time.perf_counter()
        for payload in FileJournal(path, run=1).replay():
            json.loads(payload)
        return replay_s, time.perf_counter() - started_at


def measure_memory(shards: int) -> tuple[float, float]:
    """Returns the bytes of a job with `shards` shards, a thousand of them done, and of a queue of all shards."""
    spec = load_spec(shards)
    run_leases(StateMachine(spec), shards, 10)
    gc.collect()
    tracemalloc.start()
    machine = StateMachine(spec)
    run_leases(machine, shards, min(1000, shards - 1))
    gc.collect()
    own_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    tracemalloc.start()
    queue: deque[Any] = deque({"source": "prediction", "start": n, "stop": n + 1} for n in range(shards))
    queue_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert queue and machine
    return float(own_bytes), float(queue_bytes)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    parser.add_argument("--naive", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.naive:
        asyncio.run(serve_naive(options.naive))
        return
    all_cores = os.sched_getaffinity(0)
    pin(1)
    seconds = 1.0 if options.quick else 8.0
    our_server, naive_server = [sys.executable, "-m", "elasticdl.master"], [sys.executable, __file__, "--naive"]
    rows = []
    for want, goal in ((1, 0), (BATCH, 5000)):
        (rate, rate_per_cpu_s), (naive_rate, naive_rate_per_cpu_s) = (
            measure_server(our_server, want, seconds),
            measure_server(naive_server, want, seconds),
        )
        met = rate >= goal if goal else None
        rows.append(Row(f"leases, want={want}", "1/s", rate, naive_rate, NAIVE, f"≥ {goal:,}" if goal else "", met))
        rows.append(
            Row(f"leases, want={want}", "1/s of the server's core", rate_per_cpu_s, naive_rate_per_cpu_s, NAIVE)
        )
    os.sched_setaffinity(0, all_cores)
    leases = 100_000 if options.quick else 1_000_000
    replay_s, parse_s = measure_replay(leases)
    limit = 10.0 * leases / 1_000_000
    rows.append(
        Row(
            f"replay of {leases:,} leases",
            "s",
            replay_s,
            parse_s,
            "reading the same records only",
            f"< {limit:g}",
            replay_s < limit,
        )
    )
    sizes_bytes = []
    for shards in (1_000, 100_000) if options.quick else (1_000, 100_000, 1_000_000):
        state_bytes, list_bytes = measure_memory(shards)
        sizes_bytes.append(state_bytes)
        rows.append(Row(f"memory, {shards:,} shards", "bytes", state_bytes, list_bytes, "a queue of all shards"))
    growth = max(sizes_bytes) / min(sizes_bytes)
    rows.append(Row("memory, most shards over fewest", "times", growth, None, "", "≤ 1.1", growth <= 1.1))
    notes = [
        f"{WORKERS} workers in flight; master on one core, clients on another; the goal is for {BATCH} leases a call.",
        f"Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; above 1 a core, rates suffer.",
    ]
    show("Dispatch of leases", rows, notes=notes)
    if options.json:
        write(options.json, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
