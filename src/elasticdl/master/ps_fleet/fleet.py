"""The ps of a job: their states, the slot map, the backups, and the task that is under way. Pure.

A task changes which ps holds which slots. It names the version of the slot map that is in force once it is done. No
other version is created meanwhile, so a ps that has this version or a later one in force has done the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from elasticdl.master.machine.membership import Replica
from elasticdl.master.ps_fleet.ps_events import TaskAssigned
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.slots import SlotMap, SlotMove, balance_slots
from elasticdl.spec.ids import PsId


class PsReplicaState(StrEnum):
    LAUNCHING = "launching"
    SERVING = "serving"
    DRAINING = "draining"  # its slots move away, then it leaves
    LEFT = "left"
    LOST = "lost"


GONE_PS_STATES = frozenset({PsReplicaState.LEFT, PsReplicaState.LOST})
# Ps that count towards the desired number:
ACTIVE_PS_STATES = frozenset({PsReplicaState.LAUNCHING, PsReplicaState.SERVING})

MOVE, BACKUP, PROMOTE, RESTORE = "move", "backup", "promote", "restore"


@dataclass(slots=True)
class PsReplica(Replica):
    """A ps and its state."""

    id: PsId
    state: PsReplicaState
    address: str = ""
    is_released: bool = False  # told to exit, since nothing is left for it to do

    @property
    def is_present(self) -> bool:
        return self.state not in GONE_PS_STATES

    @property
    def is_serving(self) -> bool:
        """Whether it may hold slots."""
        return self.state in (PsReplicaState.SERVING, PsReplicaState.DRAINING)

    def set_state(self, state: PsReplicaState, now: float, reason: str = "") -> None:
        if state is not self.state:
            self.state, self.since = state, now
        self.reason = reason


@dataclass(slots=True)
class PsFleet:
    """Every ps that the job ever had; ids are not reused. `desired` is 0 in a job without ps."""

    desired: int = 0
    ps: dict[PsId, PsReplica] = field(default_factory=dict)
    last_joined_at: float = 0.0  # when the newest ps began to serve
    version: int = 0  # of the slot map; 0: there is none yet
    slot_owners: tuple[PsId, ...] = ()  # by slot; a lost ps owns its slots until others have them
    backups: dict[PsId, PsId] = field(default_factory=dict)  # the ps with a complete backup, by the owner of the slots
    unrestored: list[PsId] = field(default_factory=list)  # ps that must restore their slots before training starts
    task: TaskAssigned | None = None
    failed_tasks: int = 0  # in a row
    retry_at: float = 0.0  # no task before this time

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
        """Everything that the next task and the next release depend on."""
        lives = tuple((ps.state, ps.has_said_goodbye, ps.is_released) for ps in self.ps.values())
        return self.desired, self.version, self.task, tuple(self.backups.items()), tuple(self.unrestored), lives

    def slots_of(self, ps: PsId) -> list[int]:
        return [slot for slot, owner in enumerate(self.slot_owners) if owner == ps]

    def lost_owners(self) -> list[PsId]:
        return [owner for owner in dict.fromkeys(self.slot_owners) if not self.ps[owner].is_serving]

    def to_wire(self) -> FleetView:
        """Returns the fleet as sent to workers and ps."""
        gone = frozenset(ps.id for ps in self.ps.values() if not ps.is_present)
        return FleetView(self.slot_map, self._addresses(), dict(self.backups), gone)

    def to_wire_after(self, task: TaskAssigned) -> FleetView:
        """Returns the fleet as sent to workers and ps once the task is done."""
        slot_owners, backups = self._owners_after(task)
        return self.to_wire()._replace(slot_map=SlotMap(task.version, slot_owners), backups=backups)

    def finish_task(self, task: TaskAssigned) -> None:
        self.slot_owners, self.backups = self._owners_after(task)
        self.version, self.task = task.version, None
        self.failed_tasks, self.retry_at = 0, 0.0
        if task.kind == RESTORE and task.performer in self.unrestored:
            self.unrestored.remove(task.performer)

    def give_up_task(self) -> None:
        """The task was not done. Its version may be in force on one ps, so the next version is newer."""
        assert self.task is not None
        self.version, self.task = self.task.version + 1, None

    def remove_holder(self, ps: PsId) -> None:
        """Forget the backups that a ps held and the slots that it should have restored."""
        self.backups = {owner: backup for owner, backup in self.backups.items() if backup != ps}
        if ps in self.unrestored:
            self.unrestored.remove(ps)

    def validate(self) -> None:
        """Assert the invariants."""
        assert set(self.slot_owners) <= set(self.ps), "a slot has an unknown owner"
        assert set(self.backups.values()) <= {ps.id for ps in self.ps.values() if ps.is_serving}, (
            "a backup on a ps that does not serve"
        )
        assert all(owner != backup for owner, backup in self.backups.items()), "a ps is its own backup"
        if self.task is not None:
            assert self.task.version == self.version + 1, "another version was created while a task was under way"

    def _addresses(self) -> dict[PsId, str]:
        return {ps.id: ps.address for ps in self.present_ps() if ps.address}

    def _owners_after(self, task: TaskAssigned) -> tuple[tuple[PsId, ...], dict[PsId, PsId]]:
        """The owners of slots and the complete backups once the task is done."""
        backups = dict(self.backups)
        if task.kind == BACKUP:
            return self.slot_owners, backups | ({task.performer: task.peer} if self.ps[task.peer].is_serving else {})
        receiver = task.peer if task.kind == MOVE else task.performer
        slot_owners = list(self.slot_owners)
        for slot in task.slots:
            slot_owners[slot] = receiver
        if task.kind != MOVE:  # moved rows are forwarded to the backup, restored and promoted ones are not
            backups.pop(receiver, None)
        return tuple(slot_owners), {owner: backup for owner, backup in backups.items() if owner in slot_owners}


def next_task(fleet: PsFleet, backup_count: int, directory: str) -> TaskAssigned | None:
    """The next task, the most urgent first. `directory` has the newest snapshot; "": there is none."""
    if fleet.task is not None or not fleet.version:
        return None
    return (
        _restore_task(fleet, directory)
        or _recovery_task(fleet, directory)
        or _rebalance_task(fleet)
        or (_backup_task(fleet) if backup_count else None)
    )


def _make_task(
    fleet: PsFleet, kind: str, performer: PsId, peer: PsId, slots: Sequence[int] = (), directory: str = ""
) -> TaskAssigned:
    return TaskAssigned(kind, fleet.version + 1, performer, peer, tuple(slots), directory)


def _restore_task(fleet: PsFleet, directory: str) -> TaskAssigned | None:
    for ps in fleet.unrestored:
        return _make_task(fleet, RESTORE, ps, ps, fleet.slots_of(ps), directory)
    return None


def _recovery_task(fleet: PsFleet, directory: str) -> TaskAssigned | None:
    """Recover the slots of a lost ps from their backup, otherwise from the newest snapshot."""
    for lost in fleet.lost_owners():
        slots = fleet.slots_of(lost)
        if (backup := fleet.backups.get(lost)) is not None and fleet.ps[backup].is_serving:
            return _make_task(fleet, PROMOTE, backup, lost, slots)
        if (restorer := _choose_restorer(fleet)) is not None:
            return _make_task(fleet, RESTORE, restorer, lost, slots, directory)
    return None


def _choose_restorer(fleet: PsFleet) -> PsId | None:
    """The ps with the fewest slots; None while it holds some and another ps is expected."""
    serving = sorted(fleet.serving_ids(), key=lambda ps: len(fleet.slots_of(ps)))
    if serving and (not fleet.slots_of(serving[0]) or not fleet.is_expecting):
        return serving[0]
    return None


def _rebalance_task(fleet: PsFleet) -> TaskAssigned | None:
    """Move all slots of draining ps; balance the others once no further ps is expected."""
    if not (serving := fleet.serving_ids()):
        return None
    moves = [move for move in balance_slots(fleet.slot_map, serving) if fleet.ps[move.source].is_serving]
    draining_moves = [move for move in moves if fleet.ps[move.source].state is PsReplicaState.DRAINING]
    if not draining_moves and (fleet.is_expecting or fleet.lost_owners()):
        return None
    return _first_move_task(fleet, draining_moves or moves)


def _first_move_task(fleet: PsFleet, moves: Sequence[SlotMove]) -> TaskAssigned | None:
    for _, source, target in moves:
        slots = [move.slot for move in moves if (move.source, move.target) == (source, target)]
        return _make_task(fleet, MOVE, source, target, slots)
    return None


def _backup_task(fleet: PsFleet) -> TaskAssigned | None:
    """Back up each ps that holds slots on the next one in the ring."""
    for ps, backup in backup_ring(fleet).items():
        if fleet.backups.get(ps) != backup:
            return _make_task(fleet, BACKUP, ps, backup)
    return None


def backup_ring(fleet: PsFleet) -> dict[PsId, PsId]:
    """The ps that should hold the backup of each ps: the next one of those that stay; empty if there is only one."""
    members = [ps for ps in fleet.serving_ids() if fleet.slots_of(ps)]
    return dict(zip(members, [*members[1:], *members[:1]], strict=True)) if len(members) > 1 else {}


def find_drained_ps(fleet: PsFleet) -> PsId | None:
    """A draining ps that is not needed any more: it holds neither slots nor a needed backup."""
    for ps in fleet.ps.values():
        is_busy = fleet.task is not None and ps.id in (fleet.task.performer, fleet.task.peer)
        if ps.state is not PsReplicaState.DRAINING or ps.is_released or is_busy or ps.id in fleet.slot_owners:
            continue
        if ps.id not in fleet.backups.values() or not backup_ring(fleet):
            return ps.id
    return None
