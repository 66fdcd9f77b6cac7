"""What workers and ps have in common: launched, started, delayed, disconnected, silent, exited. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from elasticdl.master.machine.actions import Action, LaunchReplica
from elasticdl.master.machine.ending import charge_failure_budget
from elasticdl.master.machine.events import (
    ReplicaDelayed,
    ReplicaExit,
    ReplicaExited,
    ReplicaFellSilent,
    ReplicaLaunched,
    ReplicasListed,
    ReplicaStarted,
    SessionLost,
)
from elasticdl.master.machine.membership import ExitCause, Replica
from elasticdl.master.machine.out_of_memory import assess_out_of_memory
from elasticdl.master.machine.state import MasterState
from elasticdl.spec.ids import ReplicaId

Actions = list[Action]
R = TypeVar("R", bound=Replica)


class ReplicaRole(ABC, Generic[R]):
    """The differences between workers and ps in the handling of their common events."""

    name: ClassVar[str]  # as in ids, kinds of log entries and options of pods
    plural: ClassVar[str]  # the word for several of them in the message of an exhausted failure budget

    @abstractmethod
    def replicas(self, job: MasterState) -> Mapping[Any, R]:
        """All replicas of this role that the job ever had, by id."""

    @abstractmethod
    def add(self, job: MasterState, replica: ReplicaId, now: float) -> R:
        """Add a replica, which is launched now."""

    @abstractmethod
    def is_launching(self, replica: R) -> bool:
        """Whether it has not connected yet."""

    @abstractmethod
    def is_gone(self, replica: R) -> bool: ...

    @abstractmethod
    def was_useful(self, replica: R) -> bool:
        """Whether it has done useful work."""

    def is_watched(self, replica: R) -> bool:
        """Whether a launcher watches its process."""
        return True

    def desired_workers(self, job: MasterState) -> int:
        """How many workers there should be; 0: the launcher need not know it for this role."""
        return 0

    @abstractmethod
    def classify_exit(self, job: MasterState, replica: R, exit_: ReplicaExit) -> ExitCause:
        """Why its process ended."""

    def count_loss(self, job: MasterState, replica: R, exit_: ReplicaExit, cause: ExitCause) -> tuple[ExitCause, bool]:
        """The cause, which repeated losses may turn into a crash, and whether this loss is a new incident."""
        return cause, True

    @abstractmethod
    def remove(self, job: MasterState, replica: R, cause: ExitCause, now: float) -> Actions:
        """Remove a replica that is gone, and hand its work to others."""

    @abstractmethod
    def on_silent(self, job: MasterState, replica: R, cause: ExitCause, now: float) -> Actions:
        """Remove a replica that is considered lost although its process may be alive."""


class ReplicaLife:
    """Handles the events that replicas of all roles have in common."""

    def __init__(self, roles: Sequence[ReplicaRole[Any]]) -> None:
        self._roles = {role.name: role for role in roles}

    def on_launched(self, job: MasterState, event: ReplicaLaunched, now: float) -> Actions:
        role = self._roles[event.role]
        replica = role.add(job, event.replica, now)
        replica.memory_raises = job.ledger.memory_raises.get(role.name, 0)
        return [
            self._launch_action(job, role, replica, now),
            job.add_log_entry(now, f"{role.name}-launched", replica=replica.id),
        ]

    def on_listed(self, job: MasterState, event: ReplicasListed, now: float) -> Actions:
        """A launcher lists its replicas. Handle what happened while no master was running."""
        job.observed.has_launcher = True
        return [action for role in self._roles.values() for action in self._catch_up(job, role, event, now)]

    def on_started(self, job: MasterState, event: ReplicaStarted, now: float) -> Actions:
        if (replica := self._find_replica(job, event.replica)) is not None:
            replica.pid = event.pid
        return []

    def on_delayed(self, job: MasterState, event: ReplicaDelayed, now: float) -> Actions:
        """Log the cluster's reason at once. The pod remains requested."""
        role, replica = self._find_role(job, event.replica), self._find_replica(job, event.replica)
        if role is None or replica is None:
            return []
        if not role.is_launching(replica) or replica.reason == event.reason:
            return []
        replica.reason = event.reason
        if not event.is_trouble:
            return []
        return [job.add_log_entry(now, f"{role.name}-delayed", replica=replica.id, reason=event.reason)]

    def on_exited(self, job: MasterState, event: ReplicaExited, now: float) -> Actions:
        role, replica = self._find_role(job, event.exit.replica), self._find_replica(job, event.exit.replica)
        if role is None or replica is None:
            return []
        return self._handle_exit(job, role, replica, event.exit, now)

    def on_session_lost(self, job: MasterState, event: SessionLost, now: float) -> Actions:
        """A lost session is no loss yet: the process may be alive. Its exit or its silence decides."""
        if (replica := self._find_replica(job, event.replica)) is not None:
            replica.is_connected = False
        return []

    def on_fell_silent(self, job: MasterState, event: ReplicaFellSilent, now: float) -> Actions:
        role, replica = self._find_role(job, event.replica), self._find_replica(job, event.replica)
        if role is None or replica is None:
            return []
        job.observed.silent_at[replica.id] = now
        return role.on_silent(job, replica, ExitCause(event.reason, is_crash=False), now)

    def _find_role(self, job: MasterState, name: str) -> ReplicaRole[Any] | None:
        return next((role for role in self._roles.values() if name in role.replicas(job)), None)

    def _find_replica(self, job: MasterState, name: str) -> Replica | None:
        role = self._find_role(job, name)
        return role.replicas(job)[name] if role is not None else None

    def _catch_up(self, job: MasterState, role: ReplicaRole[Any], event: ReplicasListed, now: float) -> Actions:
        replicas, running = role.replicas(job), dict(event.running)
        ended = {exit_.replica for exit_ in event.exited}
        actions: Actions = []
        for exit_ in event.exited:
            if exit_.replica in replicas:
                actions += self._handle_exit(job, role, replicas[exit_.replica], exit_, now)
        for replica in list(replicas.values()):
            if replica.id in running:
                replica.pid = running[replica.id]
            elif not role.is_watched(replica) or replica.has_exited or replica.id in ended:
                continue
            elif role.is_launching(replica) and not replica.pid:
                # The master died after its decision, before it sent the command.
                actions.append(self._launch_action(job, role, replica, now))
            else:
                exit_ = ReplicaExit(replica.id, replica.pid, None, None)
                actions += self._handle_exit(job, role, replica, exit_, now)
        return actions

    def _handle_exit(
        self, job: MasterState, role: ReplicaRole[Any], replica: Replica, exit_: ReplicaExit, now: float
    ) -> Actions:
        if replica.has_exited:
            return []
        replica.has_exited, replica.is_connected = True, False
        if role.is_gone(replica):
            return []
        was_useful = role.was_useful(replica)
        cause = role.classify_exit(job, replica, exit_)
        cause, log_entries = assess_out_of_memory(job, role.name, replica.memory_raises, exit_.cause, cause, now)
        cause, is_incident = role.count_loss(job, replica, exit_, cause)
        actions = role.remove(job, replica, cause, now) + log_entries
        if cause.is_crash and not is_incident:
            return actions  # the incident that it belongs to was charged already
        return actions + charge_failure_budget(job, replica.id, cause, now, was_useful=was_useful, plural=role.plural)

    @staticmethod
    def _launch_action(job: MasterState, role: ReplicaRole[Any], replica: Replica, now: float) -> LaunchReplica:
        desired_workers, suspects = role.desired_workers(job), job.suspect_replicas(now)
        return LaunchReplica(role.name, replica.id, replica.memory_raises, desired_workers, suspects)
