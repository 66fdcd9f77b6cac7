"""What a table should do, written for reading: one row at a time, in NumPy with 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from elasticdl.ps.tables.optimizer import Optimizer

Row = np.ndarray[Any, np.dtype[np.float64]]


def update(optimizer: Optimizer, row: Row, state: dict[str, Row], gradient: Row, step: int) -> None:
    """One update of one row in place. `state` is empty at first."""
    o, rate, torch = optimizer, optimizer.learning_rate, optimizer.dialect == "torch"
    assert o.epsilon is not None and o.rho is not None and o.initial_accumulator is not None

    def slot(name: str, first: float = 0.0) -> Row:
        return state.setdefault(name, np.full_like(row, first))

    if o.rule != "ftrl":
        gradient = gradient + o.l2 * row
    match o.rule:
        case "sgd":
            row -= rate * gradient
        case "momentum":
            velocity = slot("velocity")
            velocity *= o.momentum
            velocity += gradient if torch else -rate * gradient
            if torch:
                row -= rate * (gradient + o.momentum * velocity if o.nesterov else velocity)
            else:
                row += o.momentum * velocity - rate * gradient if o.nesterov else velocity
        case "adagrad":
            total = slot("accumulator", o.initial_accumulator)
            total += gradient**2
            row -= rate * gradient / (np.sqrt(total) + o.epsilon if torch else np.sqrt(total + o.epsilon))
        case "rowwise_adagrad":
            total = slot("accumulator", o.initial_accumulator)
            total += np.mean(gradient**2)
            row -= rate * gradient / (np.sqrt(total) + o.epsilon)
        case "adam" | "amsgrad" | "adamw":
            if o.rule == "adamw":
                row -= rate * o.weight_decay * row
            m, v = slot("m"), slot("v")
            m[:] = o.beta1 * m + (1 - o.beta1) * gradient
            v[:] = o.beta2 * v + (1 - o.beta2) * gradient**2
            if o.rule == "amsgrad":
                largest = slot("largest")
                np.maximum(largest, v, out=largest)
                v = largest
            first, second = 1 - o.beta1**step, 1 - o.beta2**step
            if torch:
                row -= rate / first * m / (np.sqrt(v) / np.sqrt(second) + o.epsilon)
            else:
                row -= rate * np.sqrt(second) / first * m / (np.sqrt(v) + o.epsilon)
        case "ftrl":
            total, linear = slot("accumulator", o.initial_accumulator), slot("linear")
            grown = total + gradient**2
            linear += gradient - (grown**-o.power - total**-o.power) / rate * row
            quadratic = grown**-o.power / rate + 2 * (o.l2 + o.beta / (2 * rate))
            row[:] = (np.clip(linear, -o.l1, o.l1) - linear) / quadratic
            total[:] = grown
        case "rmsprop":
            square = slot("square")
            square[:] = o.rho * square + (1 - o.rho) * gradient**2
            spread = square.copy()
            if o.centered:
                mean = slot("mean")
                mean[:] = o.rho * mean + (1 - o.rho) * gradient
                spread -= mean**2
            moved = gradient / (np.sqrt(spread) + o.epsilon if torch else np.sqrt(spread + o.epsilon))
            moved = moved if torch else rate * moved
            if o.momentum:
                velocity = slot("velocity")
                velocity[:] = o.momentum * velocity + moved
                moved = velocity
            row -= rate * moved if torch else moved
