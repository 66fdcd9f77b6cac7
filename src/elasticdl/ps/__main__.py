"""The ps process: `python -m elasticdl.ps`, started by the launcher."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback

import zmq

from elasticdl import descriptors, log, stacks, vital
from elasticdl.errors import ElasticDLError, PermanentError, is_wrong_job
from elasticdl.ps.fleet import Fleet
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.keeper import Keeper
from elasticdl.ps.keys import keys_of
from elasticdl.ps.link import Copies, Link
from elasticdl.ps.server import Server
from elasticdl.ps.tasks import Performer, Tasks
from elasticdl.ps.terms import Terms
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.signals import on_terminate
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import PsEnv
from elasticdl.testing.faults import Faults
from elasticdl.vital import VitalThread

_log = logging.getLogger(__name__)
_LOOK_S = 10.0  # between two looks for rows that have expired and workers that have gone, at most


def main() -> int:
    descriptors.allow_all()
    env = PsEnv.from_environ(os.environ)
    directory = JobDirectory(env.job_directory)
    spec = directory.load_spec()
    log.configure(env.ps, spec.log_level)
    faults = Faults.parse(env.faults, env.ps)
    vital.configure(directory.exit_reason(env.ps), faults.strike_thread)
    stacks.dump_on_signal()
    directory.counters.mkdir(exist_ok=True)
    terms = Terms(spec.ps.max_staleness, spec.ps.modulate_rate, spec.ps.grads_to_wait)
    counter = directory.counters / env.ps
    holdings = Holdings(env.ps, spec.plan.seed, spec.ps.memory_bytes, terms=terms, counter=counter)
    token = directory.load_token()
    keys, keeper = keys_of(directory.root), Keeper(holdings)
    zmq.Context.instance().socket(zmq.PAIR).close()  # start it while there are descriptors: tasks use it, see Lines
    server = Server(
        holdings, token, env.address, threads=spec.ps.threads, copy_timeout_s=spec.timing.copy_s,
        answers=keeper.answers, keys=keys,
    )  # fmt: skip
    performer = Performer(holdings, token, spec.timing.copy_s, directory.counters, faults, keys, keeper.resume)
    link = _attend(env, spec, holdings, server, performer, crashed := list[Exception]())
    farewell = link.wait_end()
    if crashed:
        return _failed(link, crashed[0])
    _log.info("farewell: %s", farewell)
    link.close(farewell)
    return 0


def _attend(
    env: PsEnv, spec: JobSpec, holdings: Holdings, server: Server, performer: Performer, crashed: list[Exception]
) -> Link:
    """Say Hello to the master, and do from here on what it says."""

    def crash(exc: Exception) -> None:
        crashed.append(exc)
        link.end("crashed")

    tasks = Tasks(performer.perform, lambda done: link.moved(done), crash)
    copies = Copies(holdings)

    def use(fleet: Fleet) -> None:
        performer.use(fleet)  # first: what is left to do may wait for its task to end
        copies.use(fleet)

    link = Link(env, spec, holdings, server.address, lambda: beat(holdings, server), tasks.give, use)
    tasks.start()
    VitalThread(_expire, args=(holdings, server), name="ps-expiry").start()
    on_terminate(link.leave)
    link.open()
    _log.info("serving at %s with %d threads", server.address, spec.ps.threads)
    return link


def _expire(holdings: Holdings, server: Server) -> None:
    """Drop rows that nobody uses any more, often enough that none is kept much longer than it should be."""
    while True:
        time.sleep(min([_LOOK_S, *(spec.ttl_s / 4 for spec in holdings.specs if spec.ttl_s)]))
        holdings.expire()
        server.memories.sweep()


def beat(holdings: Holdings, server: Server) -> pb.PsBeat:
    return pb.PsBeat(
        **holdings.beat(),
        malformed=server.malformed,
        mirror_failure=holdings.mirror_failure,
        busy_s=server.pulse.sample(),
    )


def _failed(link: Link, exc: Exception) -> int:
    _log.error("%s", "".join(traceback.format_exception(exc)))
    is_wrong = is_wrong_job(exc)
    message = str(exc) if isinstance(exc, ElasticDLError) else f"{type(exc).__name__}: {exc}"
    link.failure(message, wrong_job=is_wrong, permanent=is_wrong or isinstance(exc, PermanentError))
    link.close(message)
    return 2 if is_wrong else 1


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)  # threads of the server may be inside a request: nothing is left to wait for
