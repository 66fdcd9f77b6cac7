"""Injected faults as data: the replica, the step, the moment and the signal.

`worker-1@20:reduced=SIGKILL` kills worker-1 in step 20 between the reduction and the update. For a ps the step is the
version of the slot map that a task leads to: `ps-0@3:completed=SIGKILL` kills ps-0 when that task is done, before it is
reported to the master. For a newcomer it is the number of its state transfer, from 1: `worker-2@1:loaded=SIGSTOP`
freezes it when it has loaded the state for the first time. `ps-0/ps-door=raise` makes the thread of that name fail in
ps-0 when it starts. Several faults are separated by commas; replicas and the master read them from ELASTICDL_FAULTS.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from typing import Literal, get_args

from elasticdl.errors import SpecError

Moment = Literal[
    "begin", "computed", "pushed", "reduced", "applied",
    "assigned", "completed",  # of a task of a ps
    "requested", "loaded", "updated",  # of the state transfer to a newcomer
]  # fmt: skip

_FAULT = re.compile(r"(?P<replica>[\w-]+)@(?P<step>\d+):(?P<moment>\w+)=(?P<action>\w+)")
_THREAD_FAULT = re.compile(r"(?P<replica>[\w-]+)/(?P<thread>[\w-]+)=raise")


class InjectedFault(Exception):
    """The exception of a thread that was made to fail."""


@dataclass(frozen=True, slots=True)
class Fault:
    replica: str
    step: int
    moment: Moment
    signal: signal.Signals

    def __str__(self) -> str:
        return f"{self.replica}@{self.step}:{self.moment}={self.signal.name}"


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one replica."""

    faults: tuple[Fault, ...] = ()
    threads: frozenset[str] = frozenset()  # threads that fail

    @classmethod
    def parse(cls, text: str, replica: str) -> Faults:
        faults, threads = [], set()
        for part in filter(None, text.split(",")):
            if match := _THREAD_FAULT.fullmatch(part):
                threads |= {match["thread"]} if match["replica"] == replica else set()
                continue
            match = _FAULT.fullmatch(part)
            moments = get_args(Moment)
            if not match or match["moment"] not in moments or match["action"] not in signal.Signals.__members__:
                raise SpecError(
                    f"fault {part!r}: expected REPLICA@STEP:{'|'.join(moments)}=SIGNAL or REPLICA/THREAD=raise"
                )
            if match["replica"] == replica:
                action = signal.Signals[match["action"]]
                faults.append(Fault(replica, int(match["step"]), match["moment"], action))  # type: ignore[arg-type]
        return cls(tuple(faults), frozenset(threads))

    def inject(self, step: int, moment: Moment) -> None:
        """Injects the faults of this step and moment."""
        for fault in self.faults:
            if fault.step == step and fault.moment == moment:
                os.kill(os.getpid(), fault.signal)

    def inject_in_thread(self, name: str) -> None:
        """Raises InjectedFault if a fault names this thread."""
        if name in self.threads:
            raise InjectedFault(f"in {name}")
