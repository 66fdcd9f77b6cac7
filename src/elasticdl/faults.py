"""Injected faults as data: which worker, at which step, at which moment, what.

`worker-1@20:reduced=SIGKILL` kills worker-1 in step 20 between the reduction and the update. Of a ps the step is the
version of the map a task leads to: `ps-0@3:performed=SIGKILL` kills ps-0 when that task is done, before the master is
told. Of a newcomer it is the number of its hand-over, from 1: `worker-2@1:received=SIGSTOP` freezes it when it has
loaded the state for the first time. `ps-0/ps-door=raise` lets the thread of that name fail in ps-0 as soon as it
starts. Several are separated by commas; they reach a worker, a ps or the master through ELASTICDL_FAULTS.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from typing import Literal, get_args

from elasticdl.errors import SpecError

Moment = Literal[
    "begin", "computed", "pushed", "reduced", "applied", "given", "performed", "asked", "received", "followed"
]

_FAULT = re.compile(r"(?P<worker>[\w-]+)@(?P<step>\d+):(?P<moment>\w+)=(?P<action>\w+)")
_THREAD_FAULT = re.compile(r"(?P<worker>[\w-]+)/(?P<thread>[\w-]+)=raise")


class InjectedFault(Exception):
    """The error of a thread that a test makes fail."""


@dataclass(frozen=True, slots=True)
class Fault:
    worker: str
    step: int
    moment: Moment
    signal: signal.Signals

    def __str__(self) -> str:
        return f"{self.worker}@{self.step}:{self.moment}={self.signal.name}"


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one worker."""

    faults: tuple[Fault, ...] = ()
    threads: frozenset[str] = frozenset()  # those that fail

    @classmethod
    def parse(cls, text: str, worker: str) -> Faults:
        faults, threads = [], set()
        for part in filter(None, text.split(",")):
            if match := _THREAD_FAULT.fullmatch(part):
                threads |= {match["thread"]} if match["worker"] == worker else set()
                continue
            match = _FAULT.fullmatch(part)
            moments = get_args(Moment)
            if not match or match["moment"] not in moments or match["action"] not in signal.Signals.__members__:
                raise SpecError(
                    f"fault {part!r}: expected worker-N@STEP:{'|'.join(moments)}=SIGNAL or worker-N/THREAD=raise"
                )
            if match["worker"] == worker:
                number = signal.Signals[match["action"]]
                faults.append(Fault(worker, int(match["step"]), match["moment"], number))  # type: ignore[arg-type]
        return cls(tuple(faults), frozenset(threads))

    def inject(self, step: int, moment: Moment) -> None:
        """Injects the faults of this step and moment."""
        for fault in self.faults:
            if fault.step == step and fault.moment == moment:
                os.kill(os.getpid(), fault.signal)

    def inject_in_thread(self, name: str) -> None:
        """Fails in a thread that begins, if a fault says so."""
        if name in self.threads:
            raise InjectedFault(f"in {name}")
