"""The life of a replica, worker or ps: launched, listed, started, delayed, exited, disconnected, silent. Pure."""

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
    """What differs between workers and ps in what all replicas have in common."""

    name: ClassVar[str]  # as in its ids, its events and the options of its pods
    noun: ClassVar[str]  # how the failure budget calls several of them

    @abstractmethod
    def replicas(self, job: MasterState) -> Mapping[Any, R]:
        """All that the job ever had, by id."""

    @abstractmethod
    def add(self, job: MasterState, replica: ReplicaId, now: float) -> R:
        """A replica that is launched now."""

    @abstractmethod
    def is_launching(self, replica: R) -> bool:
        """Whether it has not been heard yet."""

    @abstractmethod
    def is_gone(self, replica: R) -> bool: ...

    @abstractmethod
    def was_useful(self, replica: R) -> bool:
        """Whether it got as far as to do some of the work."""

    def is_watched(self, replica: R) -> bool:
        """Whether a launcher watches its process."""
        return True

    def desired_workers(self, job: MasterState) -> int:
        """How many there should be, where the launcher has to know that."""
        return 0

    @abstractmethod
    def classify_exit(self, job: MasterState, replica: R, exit_: ReplicaExit) -> ExitCause:
        """Why its process ended."""

    def count_loss(self, job: MasterState, replica: R, exit_: ReplicaExit, cause: ExitCause) -> tuple[ExitCause, bool]:
        """The cause where losses are counted together, and whether this one counts by itself."""
        return cause, True

    @abstractmethod
    def remove(self, job: MasterState, replica: R, cause: ExitCause, now: float) -> Actions:
        """It is gone: what it had is up to the others."""

    @abstractmethod
    def on_silent(self, job: MasterState, replica: R, cause: ExitCause, now: float) -> Actions:
        """It is taken for lost though its process may live."""


class ReplicaLife:
    """Handles what happens to the replicas of every role."""

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
        """A launcher reports, perhaps after the master was away: catch up with what was missed."""
        job.observed.has_launcher = True
        return [action for role in self._roles.values() for action in self._catch_up(job, role, event, now)]

    def on_started(self, job: MasterState, event: ReplicaStarted, now: float) -> Actions:
        if (found := self._find(job, event.replica)) is not None:
            found[1].pid = event.pid
        return []

    def on_delayed(self, job: MasterState, event: ReplicaDelayed, now: float) -> Actions:
        """Logged at once, in the cluster's own words; the pod stays requested."""
        found = self._find(job, event.replica)
        if found is None:
            return []
        role, replica = found
        if not role.is_launching(replica) or replica.reason == event.reason:
            return []
        replica.reason = event.reason
        if not event.is_trouble:
            return []
        return [job.add_log_entry(now, f"{role.name}-delayed", replica=replica.id, reason=event.reason)]

    def on_exited(self, job: MasterState, event: ReplicaExited, now: float) -> Actions:
        found = self._find(job, event.exit.replica)
        return self._handle_exit(job, *found, event.exit, now) if found is not None else []

    def on_session_lost(self, job: MasterState, event: SessionLost, now: float) -> Actions:
        """Not yet a loss: the process may be alive. Its exit or its silence will tell."""
        if (found := self._find(job, event.replica)) is not None:
            found[1].is_connected = False
        return []

    def on_fell_silent(self, job: MasterState, event: ReplicaFellSilent, now: float) -> Actions:
        found = self._find(job, event.replica)
        if found is None:
            return []
        role, replica = found
        job.observed.silent_at[replica.id] = now
        return role.on_silent(job, replica, ExitCause(event.reason, crashed=False), now)

    def _find(self, job: MasterState, name: str) -> tuple[ReplicaRole[Any], Replica] | None:
        for role in self._roles.values():
            if (replica := role.replicas(job).get(name)) is not None:
                return role, replica
        return None

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
                # The master died between its decision and the command.
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
        cause, notes = assess_out_of_memory(job, role.name, replica.memory_raises, exit_.cause, cause, now)
        cause, is_incident = role.count_loss(job, replica, exit_, cause)
        actions = role.remove(job, replica, cause, now) + notes
        if cause.crashed and not is_incident:
            return actions  # the loss that it belongs to was charged
        return actions + charge_failure_budget(job, replica.id, cause, now, was_useful=was_useful, kind=role.noun)

    @staticmethod
    def _launch_action(job: MasterState, role: ReplicaRole[Any], replica: Replica, now: float) -> LaunchReplica:
        desired, avoided = role.desired_workers(job), job.suspect_replicas(now)
        return LaunchReplica(role.name, replica.id, replica.memory_raises, desired, avoided)
