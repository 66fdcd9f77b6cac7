"""Types of the native core, see native/src/module.cpp."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]

SLOTS: int
STRIPES: int

class MemoryLimit(MemoryError): ...

class Hyper:
    def __init__(
        self,
        rule: int,
        dialect: int = 0,
        *,
        epsilon: float = 0.0,
        momentum: float = 0.0,
        nesterov: bool = False,
        beta1: float = 0.0,
        beta2: float = 0.0,
        initial: float = 0.0,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        l2: float = 0.0,
        power: float = -0.5,
        beta: float = 0.0,
        centered: bool = False,
    ) -> None: ...

class Budget:
    def __init__(self, limit: int = 0) -> None: ...
    limit: int
    used: int

class Table:
    def __init__(
        self,
        name: str,
        columns: int,
        *,
        initial: int,
        low: float,
        high: float,
        seed: int,
        hyper: Hyper,
        budget: Budget,
        half: bool = False,
        admit_after: int = 1,
    ) -> None: ...
    def pull(self, ids: Ids, out: Floats, now: int = 0, create: bool = True) -> None: ...
    def push(self, ids: Ids, gradients: Floats, rate: float, step: int, now: int = 0) -> int: ...
    def load(self, ids: Ids, values: Floats, state: Floats, now: int = 0) -> None: ...
    def put(self, ids: Ids, values: Floats, now: int = 0) -> NDArray[np.uint8]: ...
    def find(self, ids: Ids) -> NDArray[np.uint8]: ...
    def collect(self, stripe: int, slots: NDArray[np.uint8], since: int = 0) -> tuple[Ids, Floats, Floats]: ...
    def remove_slots(self, slots: NDArray[np.uint8]) -> int: ...
    def evict(self, before: int) -> int: ...
    def turn(self) -> int: ...
    generation: int
    columns: int
    state_columns: int
    waited_ns: int
    rows: int
    counting: int
    bytes: int

def unique(ids: Ids) -> tuple[Ids, NDArray[np.int32]]: ...
def segment_sum(rows: Floats, inverse: NDArray[np.int32], out: Floats) -> None: ...
def plan(ids: Ids, owner: NDArray[np.uint16], owners: int) -> tuple[Ids, NDArray[np.int32], Ids]: ...
def foreign(ids: Ids, held: NDArray[np.uint8]) -> int: ...
def touch(ids: Ids, flags: NDArray[np.uint8]) -> None: ...
def mark(top: Ids, window: NDArray[np.uint64], flags: NDArray[np.uint8], number: int) -> None: ...
def narrow(values: Floats, out: NDArray[np.uint16], brain: bool) -> None: ...
def widen(values: NDArray[np.uint16], out: Floats, brain: bool) -> None: ...
def slots(ids: Ids) -> NDArray[np.uint16]: ...
def not_finite(values: Floats) -> int: ...
