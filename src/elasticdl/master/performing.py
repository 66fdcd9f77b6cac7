"""Performing actions: messages to workers, commands to the launcher, curves for people."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from elasticdl.master import actions as act
from elasticdl.rpc.server import Link
from elasticdl.spec import JobSpec, WorkerId
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import PsEnv, WorkerEnv, allocator, instruction_set

if TYPE_CHECKING:
    from elasticdl.master.tensorboard import Curves


class Commanded(Protocol):
    """A launcher: the one behind a socketpair, or `launcher.pods.PodLauncher`."""

    def command(self, **document: Any) -> None: ...
    async def flush(self) -> None: ...
    async def run(self) -> None: ...


class Performer:
    def __init__(self, directory: JobDirectory, spec: JobSpec, links: Mapping[WorkerId, Link], run: int) -> None:
        self._directory = directory
        self._spec = spec
        self._links = links
        self._run = run
        self.launcher: Commanded | None = None  # none: all workers come by themselves
        self.curves: Curves | None = None  # none until tensorboard is imported
        self._undrawn: list[act.ShowMetrics | act.DrawLosses] = []  # until then
        self._is_drawing = True
        self.has_curves = asyncio.Event()  # or will never have them

    def perform(self, action: act.Action) -> None:
        match action:
            case act.Send(worker, message):
                if (link := self._links.get(WorkerId(worker))) is not None:
                    link.send(message)
            case act.LaunchWorker():
                self._launch(action)
            case act.SignalWorker(worker, number):
                if self.launcher is not None:
                    self.launcher.command(command="signal", replica=worker, signal=int(number))
            case act.LaunchPs():
                self._launch_ps(action)
            case act.SignalPs(ps, number):
                if self.launcher is not None:
                    self.launcher.command(command="signal", replica=ps, signal=int(number))
            case act.ShowMetrics() | act.DrawLosses():
                self._draw(action)

    def _launch(self, action: act.LaunchWorker) -> None:
        if self.launcher is None:
            return
        env = WorkerEnv(self._directory.root, action.worker, self._spec.workers.address, self._run)
        settings = allocator(os.environ) | instruction_set(self._spec.workers.cpu_capability)
        self.launcher.command(
            command="launch",
            replica=action.worker,
            role="worker",
            argv=[sys.executable, "-P", "-m", "elasticdl.worker"],
            environ=settings | env.to_environ(),
            raises=action.raises,
            wish=action.wish,
            away_from=list(action.away_from),
        )

    def _launch_ps(self, action: act.LaunchPs) -> None:
        if self.launcher is None:
            return
        env = PsEnv(self._directory.root, action.ps, self._spec.workers.address, self._run)
        self.launcher.command(
            command="launch",
            replica=action.ps,
            role="ps",
            argv=[sys.executable, "-P", "-m", "elasticdl.ps"],
            environ=allocator(os.environ) | env.to_environ(),
            raises=action.raises,
            away_from=list(action.away_from),
        )

    def draw_with(self, curves: Curves) -> None:
        self.curves = curves
        waiting, self._undrawn = self._undrawn, []
        for action in waiting:
            self._draw(action)
        self.has_curves.set()

    def stop_drawing(self) -> None:
        """There are no curves, or no more."""
        self.curves, self._undrawn, self._is_drawing = None, [], False
        self.has_curves.set()

    def flush(self) -> None:
        """Everything drawn so far is in the files afterwards."""
        if self.curves is not None:
            self.curves.flush()

    def _draw(self, action: act.ShowMetrics | act.DrawLosses) -> None:
        if not self._is_drawing:
            return
        if self.curves is None:
            self._undrawn.append(action)
        elif isinstance(action, act.ShowMetrics):
            self.curves.metrics(action.step, action.metrics)
        else:
            self.curves.losses(action.points, action.epochs)
