"""The ps process: `python -m elasticdl.ps`, started by the launcher."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback

import zmq

from elasticdl import descriptors, log, stacks, vital
from elasticdl.errors import ElasticDLError, PermanentError, is_job_error
from elasticdl.faults import Faults
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.server.fleet_tasks import FleetTaskExecutor, FleetTaskQueue
from elasticdl.ps.server.master_client import BackupCleaner, PsMasterClient
from elasticdl.ps.server.ps_server import PsServer
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.ps.tables.push_policy import PushPolicy
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.wire.keys import find_keys
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.signals import notify_on_sigterm
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import PsEnv
from elasticdl.vital import VitalThread

_log = logging.getLogger(__name__)
_EXPIRY_INTERVAL_S = 10.0  # between two looks for rows that have expired and workers that have gone, at most


def main() -> int:
    descriptors.raise_descriptor_limit()
    env = PsEnv.from_environ(os.environ)
    directory = JobDirectory(env.job_directory)
    spec = directory.load_spec()
    log.configure_logging(env.ps, spec.log_level)
    faults = Faults.parse(env.faults, env.ps)
    vital.end_process_on_failure(directory.exit_reason_file(env.ps), faults.inject_in_thread)
    stacks.dump_on_signal()
    directory.counters.mkdir(exist_ok=True)
    terms = PushPolicy(spec.ps.max_staleness, spec.ps.scale_lr_by_staleness, spec.ps.grads_to_wait)
    counter = directory.counters / env.ps
    holdings = PsState(env.ps, spec.plan.seed, spec.ps.memory_bytes, terms=terms, counter=counter)
    token = directory.load_token()
    keys, keeper = find_keys(directory.root), SnapshotWriter(holdings)
    zmq.Context.instance().socket(zmq.PAIR).close()  # start it while there are descriptors: tasks use it, see Lines
    server = PsServer(
        holdings, token, env.address, threads=spec.ps.threads, copy_timeout_s=spec.timing.backup_timeout_s,
        answers=keeper.handlers, keys=keys,
    )  # fmt: skip
    performer = FleetTaskExecutor(
        holdings, token, spec.timing.backup_timeout_s, directory.counters, faults, keys, keeper.set_restored
    )
    link = _connect_to_master(env, spec, holdings, server, performer, crashed := list[Exception]())
    farewell = link.wait_end()
    if crashed:
        return _failed(link, crashed[0])
    _log.info("farewell: %s", farewell)
    link.close(farewell)
    return 0


def _connect_to_master(
    env: PsEnv,
    spec: JobSpec,
    holdings: PsState,
    server: PsServer,
    performer: FleetTaskExecutor,
    crashed: list[Exception],
) -> PsMasterClient:
    """Say Hello to the master, and do from here on what it says."""

    def crash(exc: Exception) -> None:
        crashed.append(exc)
        link.request_end("crashed")

    tasks = FleetTaskQueue(performer.execute, lambda done: link.send_slots_moved(done), crash)
    copies = BackupCleaner(holdings)

    def use(fleet: FleetView) -> None:
        performer.update_fleet(fleet)  # first: what is left to do may wait for its task to end
        copies.update_fleet(fleet)

    link = PsMasterClient(env, spec, holdings, server.address, lambda: heartbeat(holdings, server), tasks.put, use)
    tasks.start()
    VitalThread(_expire, args=(holdings, server), name="ps-expiry").start()
    notify_on_sigterm(link.request_leave)
    link.start()
    _log.info("serving at %s with %d threads", server.address, spec.ps.threads)
    return link


def _expire(holdings: PsState, server: PsServer) -> None:
    """Drop rows that nobody uses any more, often enough that none is kept much longer than it should be."""
    while True:
        time.sleep(min([_EXPIRY_INTERVAL_S, *(spec.ttl_s / 4 for spec in holdings.specs if spec.ttl_s)]))
        holdings.expire_rows()
        server.shared_memories.sweep()


def heartbeat(holdings: PsState, server: PsServer) -> pb.PsHeartbeat:
    return pb.PsHeartbeat(
        **holdings.heartbeat(),
        malformed=server.malformed_messages,
        mirror_failure=holdings.backup_failure,
        busy_s=server.busy_timer.sample_busy_s(),
    )


def _failed(link: PsMasterClient, exc: Exception) -> int:
    _log.error("%s", "".join(traceback.format_exception(exc)))
    is_wrong = is_job_error(exc)
    message = str(exc) if isinstance(exc, ElasticDLError) else f"{type(exc).__name__}: {exc}"
    link.send_failure(message, wrong_job=is_wrong, permanent=is_wrong or isinstance(exc, PermanentError))
    link.close(message)
    return 2 if is_wrong else 1


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)  # threads of the server may be inside a request: nothing is left to wait for
