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
from elasticdl.errors import AccessDenied, ElasticDLError, PermanentError, StateDamaged, is_of_the_machine, is_wrong_job
from elasticdl.launcher.issuer import read_authority
from elasticdl.master import events as ev
from elasticdl.master import resuming
from elasticdl.master.job import Ledger
from elasticdl.master.journal import set_aside_earlier
from elasticdl.master.loop import Loop, SteadyClock
from elasticdl.master.phase import Over
from elasticdl.master.replicas import LauncherLink
from elasticdl.master.service import Service
from elasticdl.rpc.server import MasterServer
from elasticdl.spec import JobSpec, is_loopback
from elasticdl.spec.directory import JobDirectory, read_json, write_json

if TYPE_CHECKING:
    from elasticdl.master.metrics import Metrics
    from elasticdl.master.pods import Cluster
    from elasticdl.master.tensorboard import Curves

OBSERVE_S = 0.5
LINGER_S = 10.0  # released workers have this long to say goodbye; the launcher deals with the rest
# Of a job that is deleted, the rights may go before the master is told to: whoever ended by itself meanwhile would be
# started again, and could not tell its workers any more.
REFUSED_S = 5.0
CURVES_S = 20.0  # importing what draws the curves takes about a second, much more on a machine that is busy
WATCHERS_S = 1.0  # people who watch have this long to hear the end


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m elasticdl.master")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--launcher-fd", type=int, help="socket to the launcher; without it workers come by themselves")
    parser.add_argument("--pods", action="store_true", help="replicas are pods; this is one of them")
    parser.add_argument("--run", type=int, help="number of this run of the job; by default as the directory has it")
    parser.add_argument("--port", type=int, default=0, help="to listen on; 0: that of the master before, or any")
    arguments = parser.parse_args(argv)
    descriptors.allow_all()
    directory = JobDirectory(arguments.directory)
    spec = None
    try:
        spec = directory.load_spec()
        log.configure("master", spec.log_level)
        vital.configure(directory.exit_reason("master"))
        stacks.dump_on_signal()
        asyncio.run(_serve(directory, arguments))
    except ElasticDLError as exc:
        logging.getLogger("elasticdl").error("%s", exc)
        if arguments.pods and spec is not None and _is_final(exc):
            from elasticdl.master import pods

            pods.refuse(spec, exc)
        vital.leave_reason(str(exc))
        return 1 if is_of_the_machine(exc) else exc.exit_code
    except Exception as exc:
        logging.getLogger("elasticdl").exception("the master cannot go on")
        vital.leave_reason(f"{type(exc).__name__}: {exc}")
        return 1
    return 0


def _is_final(problem: ElasticDLError) -> bool:
    """Whether no later master could do better. What the API of a cluster refuses today it may grant tomorrow."""
    from elasticdl.kube.errors import ApiError

    return (is_wrong_job(problem) or isinstance(problem, PermanentError)) and not isinstance(problem, ApiError)


async def _serve(directory: JobDirectory, arguments: argparse.Namespace) -> None:
    spec = directory.load_spec()
    cluster = _cluster(spec) if arguments.pods else None
    run = cluster.run if cluster else arguments.run or directory.run
    if cluster is not None:
        set_aside_earlier(directory, run)
    loop = Loop(directory, spec, SteadyClock(), run, cluster.journal() if cluster else None)
    loop.recover()
    is_first = not loop.state.job.ledger.entries
    if cluster is not None and is_first:
        cluster.check_places()  # once: later, what a worker has half written may lie there
    identity = directory.identity(spec, tls.Role.MASTER)
    authority = read_authority(directory) if cluster is not None and spec.security.tls else None
    server = MasterServer(Service(loop, authority), spec, directory.load_token(), run, identity)
    loop.submit(ev.MasterStarted(os.getpid()))
    if is_first and (checkpoint := resuming.find(spec, directory)) is not None:
        loop.submit(checkpoint)
    address = await server.start(arguments.port or _earlier_port(directory))
    _announce(directory, address, 0, loop.clock.now())
    attended = (loop.tick(), server.wait_failed(), _show(directory, loop, address))
    tasks = [asyncio.create_task(one) for one in attended]
    if cluster is not None:
        tasks += cluster.attend(loop)
    elif arguments.launcher_fd is not None:
        from elasticdl.launcher import process  # now: once a launcher is gone there may be no descriptor for it

        end = socket.socket(fileno=arguments.launcher_fd)
        adopt, kill = partial(process.adopt, directory, run), partial(process.kill_launcher, directory)
        link = LauncherLink(end, adopt, kill, loop.submit)
        loop.performer.launcher = link
        tasks.append(asyncio.create_task(link.run()))
        if spec.timing.master_s:
            tasks.append(asyncio.create_task(link.beat(spec.timing.master_s)))
    try:
        await _until_over(loop, tasks, refused_s=REFUSED_S if cluster is not None else 0.0)
        await _linger(loop)
        await _wait_curves(loop)
        await _say_over(loop)
        if cluster is not None:
            await cluster.close(loop)
        await server.stop(WATCHERS_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.stop(0.0)  # after a failure too: grpc does not survive the end of its event loop
        loop.close()
    if cluster is not None:
        cluster.leave()


def _cluster(spec: JobSpec) -> Cluster:
    from elasticdl.master import pods

    signals.end_on_terminate()  # the journal has all there is to know
    return pods.Cluster(spec)


def _earlier_port(directory: JobDirectory) -> int:
    """The port of the master before this one: workers find it there without looking again."""
    try:
        document = read_json(directory.master)
    except StateDamaged as exc:
        logging.getLogger("elasticdl").warning("%s; it is written anew", exc)
        return 0
    return int(str(document["address"]).rpartition(":")[2]) if document and "address" in document else 0


def _announce(directory: JobDirectory, address: str, metrics_port: int, now: float) -> None:
    document = {"address": address, "pid": os.getpid(), "metrics_port": metrics_port, "started_at": now}
    write_json(directory.master, document)


async def _until_over(loop: Loop, tasks: list[asyncio.Task[None]], refused_s: float) -> None:
    """Wait for the job's end; a task or a turn that fails ends the master, which then comes back."""
    over = asyncio.ensure_future(loop.over.wait())
    awaited: list[asyncio.Future[Any]] = [over, loop.crashed, *tasks]
    done, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    over.cancel()
    for ended in done - {over}:
        if isinstance(ended.exception(), AccessDenied):
            await asyncio.sleep(refused_s)
        ended.result()


async def _linger(loop: Loop) -> None:
    """Stay until released workers and ps have gone, so that their last words are heard."""
    with loop.changes() as changed, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while _is_somebody_here(loop.state.job.ledger):
                changed.clear()
                await changed.wait()


def _is_somebody_here(ledger: Ledger) -> bool:
    return any(ps.pid and not ps.exited for ps in ledger.fleet.ps.values()) or any(
        worker.is_here and worker.connected if worker.external else worker.pid and not worker.exited
        for worker in ledger.membership.workers.values()
    )


async def _wait_curves(loop: Loop) -> None:
    """Stay until what was trained is drawn: a job of a few steps is over before TensorBoard's writer is imported."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CURVES_S):
            await loop.performer.has_curves.wait()


async def _say_over(loop: Loop) -> None:
    phase = loop.state.job.ledger.phase
    assert isinstance(phase, Over)
    if loop.performer.launcher is not None:
        loop.performer.launcher.command(command="over", exit_code=phase.exit_code)
        await loop.performer.launcher.flush()


async def _show(directory: JobDirectory, loop: Loop, address: str) -> None:
    """Views for people. Whatever happens to them, the job goes on."""
    try:
        await _draw(directory, loop, address)
    except Exception:
        loop.performer.stop_drawing()
        logging.getLogger("elasticdl").exception("metrics and curves are gone; the job goes on without them")
        if (task := asyncio.current_task()) is None or not task.cancelling():  # else it was the end that went wrong
            await asyncio.Event().wait()


async def _draw(directory: JobDirectory, loop: Loop, address: str) -> None:
    """Metrics and curves: imported late, looked at twice a second. The loss is drawn as it is reported."""
    metrics, curves = await asyncio.to_thread(_open_views, directory, loop)
    spec = loop.state.job.spec
    # On a cluster a NetworkPolicy says who may scrape.
    is_open = spec.cluster is None and not is_loopback(spec.workers.address)
    server = metrics.serve(spec.workers.address, spec.metrics_port, directory.load_token() if is_open else "")
    _announce(directory, address, server.port, loop.clock.now())
    loop.performer.draw_with(curves)
    try:
        while True:
            metrics.observe(loop.state.job, loop.clock.now())
            curves.progress(loop.state.job)
            await asyncio.sleep(OBSERVE_S)
    finally:
        curves.progress(loop.state.job)
        curves.close()
        server.close()


def _open_views(directory: JobDirectory, loop: Loop) -> tuple[Metrics, Curves]:
    from elasticdl.master.metrics import Metrics
    from elasticdl.master.tensorboard import Curves

    ledger = loop.state.job.ledger
    return Metrics(loop.state.job.spec.name), Curves(directory.tensorboard, ledger.step, ledger.started_at)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
