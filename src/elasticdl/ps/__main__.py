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
from elasticdl.ps.tables.push_statistics import PushCountFile
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.wire.keys import find_keys
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.signals import notify_on_sigterm
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import PsEnv
from elasticdl.vital import VitalThread

_log = logging.getLogger(__name__)
_EXPIRY_INTERVAL_S = 10.0  # at most, between two searches for expired rows and shared memories of workers that are gone


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
    policy = PushPolicy(spec.ps.max_staleness, spec.ps.scale_lr_by_staleness, spec.ps.grads_to_wait)
    push_count_file = PushCountFile.create(directory.counters / env.ps)
    ps_state = PsState(env.ps, spec.plan.seed, spec.ps.memory_bytes, policy=policy, push_count_file=push_count_file)
    token = directory.load_token()
    keys, writer = find_keys(directory.root), SnapshotWriter(ps_state)
    zmq.Context.instance().socket(
        zmq.PAIR
    ).close()  # starts the context while there are descriptors: tasks use it, see PsConnections
    server = PsServer(
        ps_state, token, env.address, threads=spec.ps.threads, backup_timeout_s=spec.timing.backup_timeout_s,
        answers=writer.handlers, keys=keys,
    ).start()  # fmt: skip
    executor = FleetTaskExecutor(
        ps_state, token, spec.timing.backup_timeout_s, directory.counters, faults, keys, writer.set_restored
    )
    master = _connect_to_master(env, spec, ps_state, server, executor, crashed := list[Exception]())
    reason = master.wait_end()
    if crashed:
        return _failed(master, crashed[0])
    _log.info("ends: %s", reason)
    master.close(reason)
    return 0


def _connect_to_master(
    env: PsEnv,
    spec: JobSpec,
    ps_state: PsState,
    server: PsServer,
    executor: FleetTaskExecutor,
    crashed: list[Exception],
) -> PsMasterClient:
    """Connects to the master and starts to execute its tasks."""

    def crash(exc: Exception) -> None:
        crashed.append(exc)
        master.request_end("crashed")

    tasks = FleetTaskQueue(executor.execute, lambda done: master.send_task_report(done), crash)
    backups = BackupCleaner(ps_state)

    def update_fleet(fleet: FleetView) -> None:
        executor.update_fleet(fleet)  # first: the next call may wait for the task to end
        backups.update_fleet(fleet)

    master = PsMasterClient(
        env, spec, ps_state, server.address, lambda: heartbeat(ps_state, server), tasks.put, update_fleet
    )
    tasks.start()
    VitalThread(_expire, args=(ps_state, server), name="ps-expiry").start()
    notify_on_sigterm(master.request_leave)
    master.start()
    _log.info("serving at %s with %d threads", server.address, spec.ps.threads)
    return master


def _expire(ps_state: PsState, server: PsServer) -> None:
    """Drops expired rows, often enough that none is kept much longer than its ttl."""
    while True:
        time.sleep(min([_EXPIRY_INTERVAL_S, *(spec.ttl_s / 4 for spec in ps_state.specs if spec.ttl_s)]))
        ps_state.expire_rows()
        server.shared_memories.sweep()


def heartbeat(ps_state: PsState, server: PsServer) -> pb.PsHeartbeat:
    return pb.PsHeartbeat(
        **ps_state.heartbeat(),
        malformed=server.malformed_messages,
        backup_failure=ps_state.backup_failure,
        busy_s=server.busy_timer.sample_busy_s(),
    )


def _failed(master: PsMasterClient, exc: Exception) -> int:
    _log.error("%s", "".join(traceback.format_exception(exc)))
    is_wrong = is_job_error(exc)
    message = str(exc) if isinstance(exc, ElasticDLError) else f"{type(exc).__name__}: {exc}"
    master.send_failure(message, wrong_job=is_wrong, permanent=is_wrong or isinstance(exc, PermanentError))
    master.close(message)
    return 2 if is_wrong else 1


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)  # without waiting for server threads that may be inside a request
