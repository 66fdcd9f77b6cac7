"""The ps of a job: the life of each, the slot map, who holds whose copies, and the one task under way. Pure.

A task changes who holds what. It names the version of the map that is in force when it is done. No other version
is made while it runs, so that whoever has the task's version in force, or a later one, has done it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from elasticdl.master.machine.membership import Replica
from elasticdl.master.ps_fleet.ps_events import TaskAssigned
from elasticdl.ps import fleet as wire
from elasticdl.ps.slots import SlotMap, SlotMove, balance_slots
from elasticdl.spec.ids import PsId


class PsReplicaState(StrEnum):
    LAUNCHING = "launching"
    SERVING = "serving"
    DRAINING = "draining"  # gives its slots away, then leaves
    LEFT = "left"
    LOST = "lost"


GONE_PS_STATES = frozenset({PsReplicaState.LEFT, PsReplicaState.LOST})
# Those that count towards the desired number:
ACTIVE_PS_STATES = frozenset({PsReplicaState.LAUNCHING, PsReplicaState.SERVING})

MOVE, BACKUP, PROMOTE, RESTORE = "move", "backup", "promote", "restore"


@dataclass(slots=True)
class PsReplica(Replica):
    id: PsId
    state: PsReplicaState
    address: str = ""
    is_released: bool = False  # told that nothing is left for it to do

    @property
    def is_present(self) -> bool:
        return self.state not in GONE_PS_STATES

    @property
    def is_serving(self) -> bool:
        """Whether it holds slots, or may."""
        return self.state in (PsReplicaState.SERVING, PsReplicaState.DRAINING)

    def set_state(self, state: PsReplicaState, now: float, reason: str = "") -> None:
        if state is not self.state:
            self.state, self.since = state, now
        self.reason = reason


@dataclass(slots=True)
class PsFleet:
    """Every ps the job ever had; ids are never used again. `desired` is 0 in a job without ps."""

    desired: int = 0
    ps: dict[PsId, PsReplica] = field(default_factory=dict)
    last_joined_at: float = 0.0  # when the newest began to serve
    version: int = 0  # 0: there is no map yet
    slot_owners: tuple[PsId, ...] = ()  # of each slot; one that is lost owns its slots until others have them
    backups: dict[PsId, PsId] = field(default_factory=dict)  # complete copies, by the ps they are of
    unrestored: list[PsId] = field(default_factory=list)  # own slots, but must restore them before anybody trains
    task: TaskAssigned | None = None
    failed_tasks: int = 0  # tasks in a row
    retry_at: float = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether workers may begin."""
        return not self.desired or (self.version > 0 and not self.unrestored)

    @property
    def slot_map(self) -> SlotMap:
        return SlotMap(self.version, self.slot_owners)

    def next_id(self) -> PsId:
        return PsId(f"ps-{len(self.ps)}")

    def add(self, ps: PsId, now: float) -> PsReplica:
        self.ps[ps] = PsReplica(ps, len(self.ps), PsReplicaState.LAUNCHING, now)
        return self.ps[ps]

    def present_ps(self) -> Iterator[PsReplica]:
        return (ps for ps in self.ps.values() if ps.is_present)

    def active_ps(self) -> list[PsReplica]:
        """The ps that count towards the desired number, the youngest last."""
        return [ps for ps in self.ps.values() if ps.state in ACTIVE_PS_STATES and not ps.has_said_goodbye]

    def serving_ids(self) -> list[PsId]:
        return [ps.id for ps in self.active_ps() if ps.state is PsReplicaState.SERVING]

    @property
    def is_expecting(self) -> bool:
        """Whether another ps will serve soon."""
        active = self.active_ps()
        return len(active) < self.desired or any(ps.state is PsReplicaState.LAUNCHING for ps in active)

    @property
    def task_inputs(self) -> tuple[object, ...]:
        """All that the next task and the next release depend on: as long as it stays, they do."""
        lives = tuple((ps.state, ps.has_said_goodbye, ps.is_released) for ps in self.ps.values())
        return self.desired, self.version, self.task, tuple(self.backups.items()), tuple(self.unrestored), lives

    def slots_of(self, ps: PsId) -> list[int]:
        return [slot for slot, owner in enumerate(self.slot_owners) if owner == ps]

    def lost_owners(self) -> list[PsId]:
        return [owner for owner in dict.fromkeys(self.slot_owners) if not self.ps[owner].is_serving]

    def to_wire(self) -> wire.FleetView:
        """As all hear it."""
        gone = frozenset(ps.id for ps in self.ps.values() if not ps.is_present)
        return wire.FleetView(self.slot_map, self._addresses(), dict(self.backups), gone)

    def to_wire_after(self, task: TaskAssigned) -> wire.FleetView:
        """As all hear it once the task is done."""
        owner, replicas = self._owners_after(task)
        return self.to_wire()._replace(slot_map=SlotMap(task.version, owner), backups=replicas)

    def finish_task(self, task: TaskAssigned) -> None:
        self.slot_owners, self.backups = self._owners_after(task)
        self.version, self.task = task.version, None
        self.failed_tasks, self.retry_at = 0, 0.0
        if task.kind == RESTORE and task.performer in self.unrestored:
            self.unrestored.remove(task.performer)

    def give_up_task(self) -> None:
        """The task was not done. Its version may be in force at one ps: the next is newer, with the owners before."""
        assert self.task is not None
        self.version, self.task = self.task.version + 1, None

    def remove_holder(self, ps: PsId) -> None:
        """It holds nothing any more: neither copies of others nor slots that it was to restore."""
        self.backups = {of: replica for of, replica in self.backups.items() if replica != ps}
        if ps in self.unrestored:
            self.unrestored.remove(ps)

    def validate(self) -> None:
        """Assert the invariants."""
        assert set(self.slot_owners) <= set(self.ps), "a slot is held by nobody known"
        assert set(self.backups.values()) <= {ps.id for ps in self.ps.values() if ps.is_serving}, "copies with nobody"
        assert all(of != replica for of, replica in self.backups.items()), "a copy beside its original"
        if self.task is not None:
            assert self.task.version == self.version + 1, "another version was made while a task was under way"

    def _addresses(self) -> dict[PsId, str]:
        return {ps.id: ps.address for ps in self.present_ps() if ps.address}

    def _owners_after(self, task: TaskAssigned) -> tuple[tuple[PsId, ...], dict[PsId, PsId]]:
        """Owners and complete copies once the task is done."""
        replicas = dict(self.backups)
        if task.kind == BACKUP:
            return self.slot_owners, replicas | ({task.performer: task.other} if self.ps[task.other].is_serving else {})
        receiver = task.other if task.kind == MOVE else task.performer
        owner = list(self.slot_owners)
        for slot in task.slots:
            owner[slot] = receiver
        if task.kind != MOVE:  # rows that move go on to the copies; others have only what was held before
            replicas.pop(receiver, None)
        return tuple(owner), {of: replica for of, replica in replicas.items() if of in owner}


def next_task(fleet: PsFleet, backups: int, directory: str) -> TaskAssigned | None:
    """What has to change next, in the order of urgency; `directory` has the newest snapshot, "" where there is none."""
    if fleet.task is not None or not fleet.version:
        return None
    return (
        _restore_task(fleet, directory)
        or _recovery_task(fleet, directory)
        or _rebalance_task(fleet)
        or (_backup_task(fleet) if backups else None)
    )


def _make_task(
    fleet: PsFleet, kind: str, performer: PsId, other: PsId, slots: Sequence[int] = (), directory: str = ""
) -> TaskAssigned:
    return TaskAssigned(kind, fleet.version + 1, performer, other, tuple(slots), directory)


def _restore_task(fleet: PsFleet, directory: str) -> TaskAssigned | None:
    for ps in fleet.unrestored:
        return _make_task(fleet, RESTORE, ps, ps, fleet.slots_of(ps), directory)
    return None


def _recovery_task(fleet: PsFleet, directory: str) -> TaskAssigned | None:
    """Slots of those that are lost: from their copies, else from the newest snapshot."""
    for lost in fleet.lost_owners():
        slots = fleet.slots_of(lost)
        if (replica := fleet.backups.get(lost)) is not None and fleet.ps[replica].is_serving:
            return _make_task(fleet, PROMOTE, replica, lost, slots)
        if (restorer := _choose_restorer(fleet)) is not None:
            return _make_task(fleet, RESTORE, restorer, lost, slots, directory)
    return None


def _choose_restorer(fleet: PsFleet) -> PsId | None:
    """A ps that holds nothing, else whoever holds least; None while a replacement is on its way."""
    serving = sorted(fleet.serving_ids(), key=lambda ps: len(fleet.slots_of(ps)))
    if serving and (not fleet.slots_of(serving[0]) or not fleet.is_expecting):
        return serving[0]
    return None


def _rebalance_task(fleet: PsFleet) -> TaskAssigned | None:
    """Those that leave give away all; the rest are made even once nobody else is expected."""
    if not (serving := fleet.serving_ids()):
        return None
    moves = [move for move in balance_slots(fleet.slot_map, serving) if fleet.ps[move.source].is_serving]
    urgent = [move for move in moves if fleet.ps[move.source].state is PsReplicaState.DRAINING]
    if not urgent and (fleet.is_expecting or fleet.lost_owners()):
        return None
    return _first_move_task(fleet, urgent or moves)


def _first_move_task(fleet: PsFleet, moves: Sequence[SlotMove]) -> TaskAssigned | None:
    for _, source, target in moves:
        slots = [move.slot for move in moves if (move.source, move.target) == (source, target)]
        return _make_task(fleet, MOVE, source, target, slots)
    return None


def _backup_task(fleet: PsFleet) -> TaskAssigned | None:
    """Each that holds slots has its copies with the next in the ring."""
    for ps, replica in backup_ring(fleet).items():
        if fleet.backups.get(ps) != replica:
            return _make_task(fleet, BACKUP, ps, replica)
    return None


def backup_ring(fleet: PsFleet) -> dict[PsId, PsId]:
    """Who is to hold whose copies: the next of those that stay. Nobody where there is but one."""
    members = [ps for ps in fleet.serving_ids() if fleet.slots_of(ps)]
    return dict(zip(members, [*members[1:], *members[:1]], strict=True)) if len(members) > 1 else {}


def find_drained_ps(fleet: PsFleet) -> PsId | None:
    """A ps that was to leave, and whom nobody needs any more."""
    for ps in fleet.ps.values():
        is_busy = fleet.task is not None and ps.id in (fleet.task.performer, fleet.task.other)
        if ps.state is not PsReplicaState.DRAINING or ps.is_released or is_busy or ps.id in fleet.slot_owners:
            continue
        if ps.id not in fleet.backups.values() or not backup_ring(fleet):
            return ps.id
    return None
