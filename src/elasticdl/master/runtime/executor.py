"""Executes actions: sends messages to replicas, commands the launcher, writes curves."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from elasticdl.launcher.interface import LaunchCommand, Launcher, SignalCommand
from elasticdl.launcher.replica_environ import allocator_environ, instruction_set_environ
from elasticdl.master.machine import actions as act
from elasticdl.rpc.server import ReplicaStream
from elasticdl.spec import JobSpec, PsId, WorkerId
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import PsEnv, WorkerEnv

if TYPE_CHECKING:
    from elasticdl.master.views.tensorboard import TensorBoardCurves


class ActionRunner:
    def __init__(
        self, directory: JobDirectory, spec: JobSpec, links: Mapping[WorkerId, ReplicaStream], run: int
    ) -> None:
        self._directory = directory
        self._spec = spec
        self._links = links
        self._run = run
        self.launcher: Launcher | None = None  # None: all workers come by themselves
        self.curves: TensorBoardCurves | None = None  # none until they are opened
        self._undrawn: list[act.RecordMetrics | act.RecordLosses] = []  # until then
        self._is_drawing = True
        self.curves_ready = asyncio.Event()  # or will never have them

    def execute(self, action: act.Action) -> None:
        match action:
            case act.SendMessage(worker, message):
                if (link := self._links.get(WorkerId(worker))) is not None:
                    link.send(message)
            case act.LaunchReplica():
                self._launch(action)
            case act.SignalReplica(replica, number):
                if self.launcher is not None:
                    self.launcher.execute(SignalCommand(replica, int(number)))
            case act.RecordMetrics() | act.RecordLosses():
                self._draw(action)

    def _launch(self, action: act.LaunchReplica) -> None:
        if self.launcher is None:
            return
        command = LaunchCommand(
            action.replica,
            action.role,
            (sys.executable, "-P", "-m", f"elasticdl.{action.role}"),
            allocator_environ(os.environ) | self._replica_environ(action),
            action.memory_raises,
            action.desired_workers,
            action.avoid_nodes_of,
        )
        self.launcher.execute(command)

    def _replica_environ(self, action: act.LaunchReplica) -> dict[str, str]:
        root, address = self._directory.root, self._spec.workers.address
        if action.role == "ps":
            return PsEnv(root, PsId(action.replica), address, self._run).to_environ()
        worker = WorkerEnv(root, WorkerId(action.replica), address, self._run)
        return instruction_set_environ(self._spec.workers.cpu_capability) | worker.to_environ()

    def attach_launcher(self, launcher: Launcher) -> None:
        """Launch and signal replicas with this launcher from now on."""
        self.launcher = launcher

    def detach_launcher(self) -> None:
        """No replica is launched or signalled any more."""
        self.launcher = None

    def attach_curves(self, curves: TensorBoardCurves) -> None:
        self.curves = curves
        waiting, self._undrawn = self._undrawn, []
        for action in waiting:
            self._draw(action)
        self.curves_ready.set()

    def detach_curves(self) -> None:
        """There are no curves, or no more."""
        self.curves, self._undrawn, self._is_drawing = None, [], False
        self.curves_ready.set()

    def flush(self) -> None:
        """Everything drawn so far is in the files afterwards."""
        if self.curves is not None:
            self.curves.flush()

    def _draw(self, action: act.RecordMetrics | act.RecordLosses) -> None:
        if not self._is_drawing:
            return
        if self.curves is None:
            self._undrawn.append(action)
        elif isinstance(action, act.RecordMetrics):
            self.curves.write_metrics(action.step, action.metrics)
        else:
            self.curves.write_losses(action.points, action.epochs)
