"""Rows that embedding layers pull from the ps while a compiled function runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import ModelError
from elasticdl.keras.runtime import tf

if TYPE_CHECKING:  # both need the native core, which a job without ps does not have
    from elasticdl.model.embeddings.row_sources import RowSource
    from elasticdl.ps.client.lookups import LookupResult

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
ExtractIds = Callable[[Any], Ids]


class _PullCall(NamedTuple):
    table: str
    rows: Any  # the tensor in the graph
    leaf: int | None  # the index of the feature that the ids are, if they are one
    extract_ids: ExtractIds


class RowPulls:
    """The pulls of one compiled function, in the order of its calls."""

    def __init__(self) -> None:
        self.source: RowSource | None = None
        self._calls: list[_PullCall] = []
        self._lookups: dict[int, LookupResult] = {}
        self._tape: Any | None = None
        self._leaves: list[Any] = []
        self._failure: Exception | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context of a running function: an error of a pull is raised unchanged, not as an error of the graph."""
        self._failure = None
        try:
            yield
        except tf.errors.OpError as exc:
            if self._failure is not None:
                raise self._failure from exc
            raise

    @contextmanager
    def tracing(self, features: Any, tape: Any | None = None) -> Iterator[None]:
        """Context of a traced function, in which layers register their pulls."""
        self._calls, self._tape = [], tape
        self._leaves = tf.nest.flatten(features)
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            self._tape, self._leaves = None, []

    def pull(self, table: str, flat: Any, columns: int, ids: Any, extract_ids: ExtractIds) -> Any:
        """The rows of the vector `flat`, as they are when the function runs.

        `flat` was computed from `ids`, which may be one of the features; `extract_ids` does the same with its value.
        """
        number = len(self._calls)

        def find(looked_up: Ids) -> tuple[Floats, NDArray[np.int32]]:
            try:
                if self.source is None:
                    raise ModelError(f"table {table}: no ps to pull it from yet")
                lookup = self.source.find(table, looked_up)
            except Exception as exc:
                self._failure = exc
                raise
            self._lookups[number] = lookup
            return np.ascontiguousarray(lookup.rows, np.float32), np.asarray(lookup.plan.inverse, np.int32)

        rows, inverse = tf.numpy_function(find, [tf.cast(flat, tf.int64)], [tf.float32, tf.int32])
        rows = tf.ensure_shape(rows, [None, columns])
        if self._tape is not None:
            self._tape.watch(rows)
        leaf = next((number for number, leaf in enumerate(self._leaves) if leaf is ids), None)
        self._calls.append(_PullCall(table, rows, leaf, extract_ids))
        return tf.gather(rows, tf.ensure_shape(inverse, [None]))

    def row_tensors(self) -> list[Any]:
        """The row tensors, to compute their gradients."""
        return [call.rows for call in self._calls]

    def give_gradients(self, gradients: list[Floats]) -> None:
        """Pass the gradients of the pulled rows to the source."""
        for number, (call, gradient) in enumerate(zip(self._calls, gradients, strict=True)):
            assert self.source is not None
            self.source.give_gradients(call.table, self._lookups.pop(number), gradient)

    def predict_ids(self, features: Any) -> dict[str, list[Ids]]:
        """Returns the ids that a batch with these features looks up, by table, where ids are features themselves."""
        leaves = tf.nest.flatten(features)
        predicted: dict[str, list[Ids]] = {}
        for call in self._calls:
            if call.leaf is not None:
                ids = call.extract_ids(leaves[call.leaf])
                if not any(np.array_equal(ids, earlier) for earlier in predicted.get(call.table, ())):
                    predicted.setdefault(call.table, []).append(ids)
        return predicted


_current: ContextVar[RowPulls | None] = ContextVar("pulls", default=None)


def current_pulls() -> RowPulls | None:
    """The pulls of the function that is being traced; None outside of a trace."""
    return _current.get()
