"""Simulations of one trace under several policies, each in a process of its own if there are several."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from queue import Empty
from typing import Any

from elasticdl.scheduler import policies
from elasticdl.sim.engine import Engine, Setting
from elasticdl.sim.outcome import Outcome, Timing
from elasticdl.sim.records import Records
from elasticdl.sim.source import Source

TOLD_S = 0.1  # between two words about progress


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one simulation is."""

    policy: str
    now: float
    done: int
    wall_s: float


Tell = Callable[[Progress], None]
IsStopped = Callable[[], bool]


def simulate(policy: str, source: Source, setting: Setting, tell: Tell, is_stopped: IsStopped) -> Outcome:
    """One policy, here. When stopped it answers with what there is."""
    began = told_at = time.monotonic()
    rule = policies.named(policy)
    jobs = source.jobs(adapts_batch=rule.adapts_batch, needs_oracle=rule.needs_oracle)
    engine = Engine(rule, jobs, setting)
    ended, never = Records(), Records()
    stopped_at: float | None = None

    def progress(now: float, _active: int) -> None:
        nonlocal told_at
        if (real := time.monotonic()) - told_at >= TOLD_S:
            told_at = real
            tell(Progress(policy, now, len(ended) + len(never), real - began))
            if is_stopped():
                raise _Stopped

    try:
        for record in engine.run(progress):
            (never if record.finished_at is None else ended).append(record)
    except _Stopped:
        stopped_at = engine.now
    loop = engine.loop
    timing = Timing(time.monotonic() - began, loop.policy_s, loop.slowest_s, loop.decisions)
    tell(Progress(policy, engine.now, len(ended) + len(never), timing.wall_s))
    return Outcome(
        policy,
        sum(node.devices for node in setting.nodes),
        ended,
        never,
        len(engine.active) if stopped_at is not None else 0,
        tuple(engine.used),
        engine.device_s,
        loop.refused,
        engine.trouble,
        timing,
        stopped_at,
    )


class _Stopped(Exception):
    pass


def simulate_all(
    names: list[str], source: Source, setting: Setting, processes: int, tell: Tell, is_stopped: IsStopped
) -> Iterator[Outcome]:
    """As they end. With one process, or one policy, here."""
    if min(processes, len(names)) <= 1:
        for name in names:
            if not is_stopped():
                yield simulate(name, source, setting, tell, is_stopped)
        return
    # Not forked: threads of the terminal would be, too.
    context = multiprocessing.get_context("spawn")
    words, stop = context.Queue(), context.Event()
    with ProcessPoolExecutor(min(processes, len(names)), context, _begin, (words, stop)) as pool:
        # Ctrl-C is ours: processes that are born while it is blocked never hear it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            waiting: set[Future[Outcome]] = {pool.submit(_simulate, name, source, setting) for name in names}
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        while waiting:
            if is_stopped() and not stop.is_set():
                stop.set()
                for one in waiting:
                    one.cancel()
            _pass_on(words, tell)
            done = {one for one in waiting if one.done()}
            waiting -= done
            yield from (one.result() for one in as_completed(done) if not one.cancelled())


def _pass_on(words: Any, tell: Tell) -> None:
    try:
        tell(words.get(timeout=TOLD_S))
        while True:
            tell(words.get_nowait())
    except Empty:
        pass


# Of a process of the pool: where it tells, and whether it is to stop.
_words: Any = None
_stop: Any = None


def _begin(words: Any, stop: Any) -> None:
    global _words, _stop
    _words, _stop = words, stop


def _simulate(policy: str, source: Source, setting: Setting) -> Outcome:
    return simulate(policy, source, setting, _words.put, _stop.is_set)
