"""The description of an embedding table, and how the native table of it is created."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from elasticdl.ps import _native
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import DIALECTS, RULES, Optimizer


class TableSpec(BaseModel):
    """Describes a table. All workers must declare the same spec under a name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    columns: Annotated[int, Field(ge=1)]
    rows: int | None = None  # the number of ids, if it is known
    initializer: Initializer = Initializer()
    optimizer: Optimizer = Optimizer()
    storage: Literal["float32", "bfloat16"] = "float32"
    admit_after: Annotated[int, Field(ge=1)] = 1  # sightings until an id gets a row
    ttl_s: Annotated[float, Field(ge=0)] = 0.0  # a row that was not used for this long is dropped; 0: never


def create_table(spec: TableSpec, seed: int, budget: _native.Budget | None = None) -> _native.Table:
    """Creates an empty table. A row is a function of (seed, name, id) until it is updated.

    Tables with the same budget share its memory limit.
    """
    initial = spec.initializer.to_native(spec.columns, spec.rows)
    return _native.Table(
        spec.name,
        spec.columns,
        initial=initial.kind,
        low=initial.low,
        high=initial.high,
        seed=table_seed(seed, spec.name),
        hyper=native_hyperparameters(spec.optimizer),
        budget=budget or _native.Budget(),
        half=spec.storage == "bfloat16",
        admit_after=spec.admit_after,
    )


def table_seed(seed: int, name: str) -> int:
    """Derives the seed of a table from the seed of the job."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "little")


def native_hyperparameters(optimizer: Optimizer) -> _native.Hyper:
    assert optimizer.epsilon is not None and optimizer.rho is not None and optimizer.initial_accumulator is not None
    return _native.Hyper(
        RULES.index(optimizer.rule),
        DIALECTS.index(optimizer.dialect),
        epsilon=optimizer.epsilon,
        momentum=optimizer.momentum,
        nesterov=optimizer.nesterov,
        beta1=optimizer.beta1,
        beta2=optimizer.rho if optimizer.rule == "rmsprop" else optimizer.beta2,
        initial=optimizer.initial_accumulator,
        weight_decay=optimizer.weight_decay if optimizer.rule == "adamw" else 0.0,
        l1=optimizer.l1,
        l2=optimizer.l2,
        power=optimizer.power,
        beta=optimizer.beta,
        centered=optimizer.centered,
    )
