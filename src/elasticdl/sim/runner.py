"""Simulates one trace under several policies, each in a process of its own if there are several."""

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
from elasticdl.sim.engine import SimulationConfig, SimulationEngine
from elasticdl.sim.results.outcome import JobRecords, SimulationOutcome, SimulationTiming
from elasticdl.sim.traces.source import TraceSource

PROGRESS_INTERVAL_S = 0.1  # between two reports of progress


@dataclass(frozen=True, slots=True)
class SimulationProgress:
    """The progress of one simulation."""

    policy: str
    simulated_s: float
    finished_jobs: int
    wall_s: float


ProgressCallback = Callable[[SimulationProgress], None]
IsStopped = Callable[[], bool]


def simulate(
    policy: str, source: TraceSource, config: SimulationConfig, report_progress: ProgressCallback, is_stopped: IsStopped
) -> SimulationOutcome:
    """Simulates one policy in this process. If it is stopped, returns the results so far."""
    began = reported_at = time.monotonic()
    loaded_policy = policies.load_policy(policy)
    jobs = source.jobs(adapts_batch=loaded_policy.adapts_batch, needs_oracle=loaded_policy.needs_oracle)
    engine = SimulationEngine(loaded_policy, jobs, config)
    ended, never = JobRecords(), JobRecords()
    stopped_at: float | None = None

    def progress(now: float, _active: int) -> None:
        nonlocal reported_at
        if (now_s := time.monotonic()) - reported_at >= PROGRESS_INTERVAL_S:
            reported_at = now_s
            report_progress(SimulationProgress(policy, now, len(ended) + len(never), now_s - began))
            if is_stopped():
                raise _SimulationStopped

    try:
        for record in engine.run(progress):
            (never if record.finished_at is None else ended).append(record)
    except _SimulationStopped:
        stopped_at = engine.now
    loop = engine.loop
    timing = SimulationTiming(time.monotonic() - began, loop.policy_s, loop.max_policy_s, loop.decisions)
    report_progress(SimulationProgress(policy, engine.now, len(ended) + len(never), timing.wall_s))
    return SimulationOutcome(
        policy,
        sum(node.devices for node in config.nodes),
        ended,
        never,
        len(engine.active_jobs) if stopped_at is not None else 0,
        tuple(engine.device_usage),
        engine.device_s,
        loop.rejected_plans,
        engine.policy_error,
        timing,
        stopped_at,
    )


class _SimulationStopped(Exception):
    pass


def simulate_all(
    names: list[str],
    source: TraceSource,
    config: SimulationConfig,
    processes: int,
    report_progress: ProgressCallback,
    is_stopped: IsStopped,
) -> Iterator[SimulationOutcome]:
    """Yields outcomes as simulations end. With one process or one policy they run in this process."""
    if min(processes, len(names)) <= 1:
        for name in names:
            if not is_stopped():
                yield simulate(name, source, config, report_progress, is_stopped)
        return
    # Spawned, because a fork would copy the threads of the terminal.
    context = multiprocessing.get_context("spawn")
    progress_queue, stop_event = context.Queue(), context.Event()
    with ProcessPoolExecutor(
        min(processes, len(names)), context, _initialize_process, (progress_queue, stop_event)
    ) as pool:
        # Only this process handles Ctrl-C: processes that start while it is blocked never receive it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            pending: set[Future[SimulationOutcome]] = {
                pool.submit(_simulate_in_process, name, source, config) for name in names
            }
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        while pending:
            if is_stopped() and not stop_event.is_set():
                stop_event.set()
                for future in pending:
                    future.cancel()
            _forward_progress(progress_queue, report_progress)
            done = {future for future in pending if future.done()}
            pending -= done
            yield from (future.result() for future in as_completed(done) if not future.cancelled())


def _forward_progress(progress_queue: Any, report_progress: ProgressCallback) -> None:
    try:
        report_progress(progress_queue.get(timeout=PROGRESS_INTERVAL_S))
        while True:
            report_progress(progress_queue.get_nowait())
    except Empty:
        pass


# In a process of the pool: where it reports progress, and whether it must stop.
_progress_queue: Any = None
_stop_event: Any = None


def _initialize_process(progress_queue: Any, stop_event: Any) -> None:
    global _progress_queue, _stop_event
    _progress_queue, _stop_event = progress_queue, stop_event


def _simulate_in_process(policy: str, source: TraceSource, config: SimulationConfig) -> SimulationOutcome:
    return simulate(policy, source, config, _progress_queue.put, _stop_event.is_set)
