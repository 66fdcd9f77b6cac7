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
    """Executes the actions that the master has decided on."""

    def __init__(
        self, directory: JobDirectory, spec: JobSpec, streams: Mapping[WorkerId, ReplicaStream], run: int
    ) -> None:
        self._directory = directory
        self._spec = spec
        self._streams = streams
        self._run = run
        self.launcher: Launcher | None = None  # None: all workers are started by hand
        self.curves: TensorBoardCurves | None = None  # none until they are opened
        self._undrawn: list[act.RecordMetrics | act.RecordLosses] = []  # until there are curves
        self._is_drawing = True
        self.curves_ready = asyncio.Event()  # or will never have them

    def execute(self, action: act.Action) -> None:
        match action:
            case act.SendMessage(worker, message):
                if (stream := self._streams.get(WorkerId(worker))) is not None:
                    stream.send(message)
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
        """Uses this launcher to launch and signal replicas from now on."""
        self.launcher = launcher

    def detach_launcher(self) -> None:
        """Stops launching and signalling replicas."""
        self.launcher = None

    def attach_curves(self, curves: TensorBoardCurves) -> None:
        self.curves = curves
        undrawn, self._undrawn = self._undrawn, []
        for action in undrawn:
            self._draw(action)
        self.curves_ready.set()

    def detach_curves(self) -> None:
        """Stops drawing curves."""
        self.curves, self._undrawn, self._is_drawing = None, [], False
        self.curves_ready.set()

    def flush(self) -> None:
        """Writes everything drawn so far to the files."""
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
