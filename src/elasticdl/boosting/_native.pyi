import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

def compute(
    objective: int,
    margins: Floats,
    labels: Floats,
    weights: Floats | None,
    gradients: Floats,
    hessians: Floats,
    *,
    classes: int,
    parameter: float,
    positive_weight: float,
    threads: int,
) -> None: ...
def sample(
    gradients: Floats, hessians: Floats, *, classes: int, first_record: int, key: int, share: float, threads: int
) -> None: ...
def largest(values: Floats, *, threads: int) -> float: ...
def snap(values: Floats, *, shift: float, threads: int) -> None: ...
