"""Rows that embedding layers pull from the ps while a compiled function runs.

A layer knows nothing of ps: while a function is traced it asks `current()` for the rows of its ids. The rows are
pulled by a call out of the graph, and watched, so that their gradients can be asked for beside those of the variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import ModelError
from elasticdl.keras.runtime import tf

Floats = NDArray[np.float32]


class FoundPlan(Protocol):
    @property
    def inverse(self) -> NDArray[np.int32]: ...


class FoundRows(Protocol):
    """What a look-up found: rows[plan.inverse] are the rows of the ids, one by one."""

    @property
    def plan(self) -> FoundPlan: ...

    @property
    def rows(self) -> Floats: ...


class Finder(Protocol):
    """The part of `ps.lookups.Lookups` that layers need."""

    def find(self, table: str, ids: NDArray[np.int64], *, create: bool = True) -> FoundRows: ...

    def give(self, table: str, found: Any, gradients: Floats) -> None: ...


class _Call(NamedTuple):
    table: str
    rows: Any  # the tensor in the graph


class Pulls:
    """The pulls of one compiled function, in the order in which it makes them."""

    def __init__(self, *, creates: bool) -> None:
        self.finder: Finder | None = None
        self._creates = creates
        self._calls: list[_Call] = []
        self._found: dict[int, FoundRows] = {}
        self._tape: Any | None = None

    @contextmanager
    def tracing(self, tape: Any | None = None) -> Iterator[None]:
        """While the function is traced: layers come here."""
        self._calls, self._tape = [], tape
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            self._tape = None

    def pull(self, table: str, ids: Any, columns: int) -> Any:
        """The rows of `ids`, a vector, as they are when the function runs."""
        number = len(self._calls)

        def find(wanted: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int32]]:
            if self.finder is None:
                raise ModelError(f"table {table}: no ps to pull it from yet")
            found = self.finder.find(table, wanted, create=self._creates)
            self._found[number] = found
            return np.ascontiguousarray(found.rows, np.float32), np.asarray(found.plan.inverse, np.int32)

        rows, inverse = tf.numpy_function(find, [tf.cast(ids, tf.int64)], [tf.float32, tf.int32])
        rows = tf.ensure_shape(rows, [None, columns])
        if self._tape is not None:
            self._tape.watch(rows)
        self._calls.append(_Call(table, rows))
        return tf.gather(rows, tf.ensure_shape(inverse, [None]))

    def rows(self) -> list[Any]:
        """The tensors to differentiate by."""
        return [call.rows for call in self._calls]

    def give(self, gradients: list[Floats]) -> None:
        """The gradients of `rows`, to those who found them."""
        for number, (call, gradient) in enumerate(zip(self._calls, gradients, strict=True)):
            assert self.finder is not None
            self.finder.give(call.table, self._found.pop(number), gradient)


_current: ContextVar[Pulls | None] = ContextVar("pulls", default=None)


def current() -> Pulls | None:
    """The pulls of the function that is being traced."""
    return _current.get()
