"""One version of the fleet of ps as every process sees it: the slot map, addresses, backups, and which ps are lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from elasticdl.ps.slots import SlotMap
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import PsId


class FleetView(NamedTuple):
    """One version of the fleet. Lost ps stay in it as long as a request to them may be open."""

    slot_map: SlotMap
    addresses: Mapping[PsId, str]
    backups: Mapping[PsId, PsId]  # the holder of the backup of each ps that has one
    lost: frozenset[PsId] = frozenset()

    @property
    def version(self) -> int:
        return self.slot_map.version

    def to_proto(self) -> pb.Fleet:
        names = list(dict.fromkeys([*self.addresses, *self.lost]))
        numbers = {name: number for number, name in enumerate(names)}
        return pb.Fleet(
            version=self.version,
            members=[
                pb.PsMember(
                    ps=name,
                    address=self.addresses.get(name, ""),
                    backup=self.backups.get(name, ""),
                    is_lost=name in self.lost,
                )
                for name in names
            ],
            owner=[numbers[owner] for owner in self.slot_map.owner],
        )

    @classmethod
    def from_proto(cls, message: pb.Fleet) -> FleetView:
        names = [PsId(member.ps) for member in message.members]
        return cls(
            SlotMap(message.version, tuple(names[number] for number in message.owner)),
            {PsId(member.ps): member.address for member in message.members if member.address},
            {PsId(member.ps): PsId(member.backup) for member in message.members if member.backup},
            frozenset(PsId(member.ps) for member in message.members if member.is_lost),
        )
