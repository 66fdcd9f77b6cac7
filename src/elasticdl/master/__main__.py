"""`python -m elasticdl.master JOB_DIRECTORY --launcher-fd N`: run one job until it is over.

Started by the launcher, and started again by it should it die: then it replays its journal and goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl import descriptors, log, signals, stacks, tls, vital
from elasticdl.errors import AccessDenied, ElasticDLError, PermanentError, StateDamaged, is_job_error, is_machine_error
from elasticdl.launcher.certificate_manager import read_authority
from elasticdl.launcher.interface import EndCommand
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.phase import FinalPhase
from elasticdl.master.machine.state import Ledger
from elasticdl.master.runtime import initial_checkpoint
from elasticdl.master.runtime.journal import archive_earlier_run
from elasticdl.master.runtime.launcher_link import LauncherConnection
from elasticdl.master.runtime.loop import MasterLoop, SteadyClock
from elasticdl.master.runtime.service import MasterServicer
from elasticdl.rpc.server import MasterServer
from elasticdl.spec import JobSpec, is_loopback
from elasticdl.spec.directory import JobDirectory, read_json, write_json

if TYPE_CHECKING:
    from elasticdl.master.kubernetes.backend import KubernetesBackend
    from elasticdl.master.runtime.metrics import PrometheusMetrics
    from elasticdl.master.views.tensorboard import TensorBoardCurves

VIEWS_INTERVAL_S = 0.5
GOODBYE_TIMEOUT_S = 10.0  # released workers have this long to say goodbye; the launcher deals with the rest
# When a job is deleted, its rights may disappear before its master is stopped. A master that exits in between would be
# restarted, and could no longer stop its workers.
DELETION_GRACE_S = 5.0
CURVES_TIMEOUT_S = 20.0  # for reading the curves of earlier masters, on a machine that may be busy
WATCHERS_TIMEOUT_S = 1.0  # watching clients have this long to receive the end


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m elasticdl.master")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--launcher-fd", type=int, help="socket to the launcher; without it workers come by themselves")
    parser.add_argument("--pods", action="store_true", help="replicas are pods; this is one of them")
    parser.add_argument("--run", type=int, help="number of this run of the job; by default as the directory has it")
    parser.add_argument("--port", type=int, default=0, help="to listen on; 0: that of the master before, or any")
    arguments = parser.parse_args(argv)
    descriptors.raise_descriptor_limit()
    directory = JobDirectory(arguments.directory)
    spec = None
    try:
        spec = directory.load_spec()
        log.configure_logging("master", spec.log_level)
        vital.end_process_on_failure(directory.exit_reason_file("master"))
        stacks.dump_on_signal()
        asyncio.run(_serve(directory, arguments))
    except ElasticDLError as exc:
        logging.getLogger("elasticdl").error("%s", exc)
        if arguments.pods and spec is not None and _is_final(exc):
            from elasticdl.master.kubernetes import backend

            backend.publish_refusal(spec, exc)
        vital.write_exit_reason(str(exc))
        return 1 if is_machine_error(exc) else exc.exit_code
    except Exception as exc:
        logging.getLogger("elasticdl").exception("the master cannot go on")
        vital.write_exit_reason(f"{type(exc).__name__}: {exc}")
        return 1
    return 0


def _is_final(problem: ElasticDLError) -> bool:
    """Whether no later master could do better. What the API of a cluster refuses today it may grant tomorrow."""
    from elasticdl.kube.errors import ApiError

    return (is_job_error(problem) or isinstance(problem, PermanentError)) and not isinstance(problem, ApiError)


async def _serve(directory: JobDirectory, arguments: argparse.Namespace) -> None:
    spec = directory.load_spec()
    cluster = _open_kubernetes(spec) if arguments.pods else None
    run = cluster.run if cluster else arguments.run or directory.run_number
    if cluster is not None:
        archive_earlier_run(directory, run)
    snapshot = initial_checkpoint.find_initial_snapshot(spec, directory)
    journal = cluster.journal() if cluster else None
    loop = MasterLoop(directory, spec, SteadyClock(), run, journal, initial_snapshot=snapshot)
    loop.recover()
    is_first = not loop.machine.state.ledger.entry_count
    if cluster is not None and is_first:
        cluster.check_outputs()  # once: later, what a worker has half written may lie there
    identity = directory.tls_credentials(spec, tls.Role.MASTER)
    authority = read_authority(directory) if cluster is not None and spec.security.tls else None
    server = MasterServer(MasterServicer(loop, authority), spec, directory.load_token(), run, identity)
    loop.submit(ev.MasterStarted(os.getpid()))
    if is_first and (checkpoint := initial_checkpoint.find_resumed_checkpoint(spec, directory)) is not None:
        loop.submit(checkpoint)
    address = await server.start(arguments.port or _earlier_port(directory))
    _announce(directory, address, 0, loop.clock.now())
    attended = (loop.run_ticks(), server.wait_for_failure(), _run_views(directory, loop, address))
    tasks = [asyncio.create_task(task_coroutine) for task_coroutine in attended]
    if cluster is not None:
        tasks += cluster.start(loop)
    elif arguments.launcher_fd is not None:
        from elasticdl.launcher.local import processes  # now: once a launcher is gone there may be no descriptor for it

        end = socket.socket(fileno=arguments.launcher_fd)
        adopt, kill = partial(processes.replace_launcher, directory, run), partial(processes.kill_launcher, directory)
        link = LauncherConnection(end, adopt, kill, loop.submit)
        loop.executor.attach_launcher(link)
        tasks.append(asyncio.create_task(link.run()))
        if spec.timing.master_stall_timeout_s:
            tasks.append(asyncio.create_task(link.send_heartbeats(spec.timing.master_stall_timeout_s)))
    try:
        await _wait_until_over(loop, tasks, refused_s=DELETION_GRACE_S if cluster is not None else 0.0)
        await _wait_for_replicas(loop)
        await _wait_curves(loop)
        await _tell_launcher(loop)
        if cluster is not None:
            await cluster.publish_result(loop)
        await server.stop(WATCHERS_TIMEOUT_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.stop(0.0)  # after a failure too: grpc does not survive the end of its event loop
        loop.close()
    if cluster is not None:
        cluster.retire()


def _open_kubernetes(spec: JobSpec) -> KubernetesBackend:
    from elasticdl.master.kubernetes import backend

    signals.exit_on_sigterm()  # the journal has all there is to know
    return backend.KubernetesBackend.connect(spec)


def _earlier_port(directory: JobDirectory) -> int:
    """The port of the master before this one: workers find it there without looking again."""
    try:
        document = read_json(directory.master)
    except StateDamaged as exc:
        logging.getLogger("elasticdl").warning("%s; it is written again", exc)
        return 0
    return int(str(document["address"]).rpartition(":")[2]) if document and "address" in document else 0


def _announce(directory: JobDirectory, address: str, metrics_port: int, now: float) -> None:
    document = {"address": address, "pid": os.getpid(), "metrics_port": metrics_port, "started_at": now}
    write_json(directory.master, document)


async def _wait_until_over(loop: MasterLoop, tasks: list[asyncio.Task[None]], refused_s: float) -> None:
    """Wait for the job's end; a task or a turn that fails ends the master, which then comes back."""
    over = asyncio.ensure_future(loop.over.wait())
    awaited: list[asyncio.Future[Any]] = [over, loop.crashed, *tasks]
    done, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    over.cancel()
    for ended in done - {over}:
        if isinstance(ended.exception(), AccessDenied):
            await asyncio.sleep(refused_s)
        ended.result()


async def _wait_for_replicas(loop: MasterLoop) -> None:
    """Stay until released workers and ps have gone, so that their last words are heard."""
    with loop.watch_changes() as changed, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE_TIMEOUT_S):
            while _has_replicas(loop.machine.state.ledger):
                changed.clear()
                await changed.wait()


def _has_replicas(ledger: Ledger) -> bool:
    return any(ps.pid and not ps.has_exited for ps in ledger.fleet.ps.values()) or any(
        worker.is_present and worker.is_connected if worker.is_external else worker.pid and not worker.has_exited
        for worker in ledger.membership.workers.values()
    )


async def _wait_curves(loop: MasterLoop) -> None:
    """Stay until what was trained is drawn: a job of a few steps may be over before the curves are opened."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CURVES_TIMEOUT_S):
            await loop.executor.curves_ready.wait()


async def _tell_launcher(loop: MasterLoop) -> None:
    phase = loop.machine.state.ledger.phase
    assert isinstance(phase, FinalPhase)
    if loop.executor.launcher is not None:
        loop.executor.launcher.execute(EndCommand(phase.exit_code))
        await loop.executor.launcher.flush()


async def _run_views(directory: JobDirectory, loop: MasterLoop, address: str) -> None:
    """Views for users. If one fails, the job goes on."""
    try:
        await _update_views(directory, loop, address)
    except Exception:
        loop.executor.detach_curves()
        logging.getLogger("elasticdl").exception("metrics and curves are gone; the job goes on without them")
        if (task := asyncio.current_task()) is None or not task.cancelling():  # else it was the end that went wrong
            await asyncio.Event().wait()


async def _update_views(directory: JobDirectory, loop: MasterLoop, address: str) -> None:
    """Metrics and curves: opened late, looked at twice a second. The loss is drawn as it is reported."""
    metrics, curves = await asyncio.to_thread(_open_views, directory, loop)
    spec = loop.machine.state.spec
    # On a cluster a NetworkPolicy says who may scrape.
    is_open = spec.cluster is None and not is_loopback(spec.workers.address)
    server = metrics.start_server(spec.workers.address, spec.metrics_port, directory.load_token() if is_open else "")
    _announce(directory, address, server.port, loop.clock.now())
    loop.executor.attach_curves(curves)
    try:
        while True:
            metrics.observe(loop.machine.state, loop.clock.now())
            curves.write_progress(loop.machine.state)
            await asyncio.sleep(VIEWS_INTERVAL_S)
    finally:
        curves.write_progress(loop.machine.state)
        curves.close()
        server.close()


def _open_views(directory: JobDirectory, loop: MasterLoop) -> tuple[PrometheusMetrics, TensorBoardCurves]:
    from elasticdl.master.runtime.metrics import PrometheusMetrics
    from elasticdl.master.views.tensorboard import TensorBoardCurves

    ledger = loop.machine.state.ledger
    return PrometheusMetrics(loop.machine.state.spec.name), TensorBoardCurves.open(
        directory.tensorboard, ledger.step, ledger.started_at
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
