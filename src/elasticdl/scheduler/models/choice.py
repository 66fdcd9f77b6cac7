"""At most one option for each, within capacities, at the least cost: an integer program, solved by HiGHS."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, vstack


def choose(
    whose: Sequence[int],
    costs: Sequence[float],
    uses: Sequence[Sequence[float]],
    capacity: Sequence[float],
    gap: float,
) -> list[int]:
    """Places of the options taken. Option i belongs to `whose[i]`, costs `costs[i]` and takes `uses[i]` of `capacity`.

    Taking none costs nothing. The answer is within `gap` of the best, as a part of it.
    """
    if not costs:
        return []
    owners, number = np.array(whose), len(costs)
    one_each = coo_array((np.ones(number), (owners, np.arange(number))), shape=(int(owners.max()) + 1, number))
    table = vstack([one_each, coo_array(np.array(uses, float).T)]).tocsr()
    limits = np.concatenate([np.ones(one_each.shape[0]), np.array(capacity, float)])
    found = milp(
        np.array(costs),
        integrality=np.ones(number),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(table, -np.inf, limits),
        # HiGHS's presolve prints to standard output now and then, and such programs hardly need it.
        options={"mip_rel_gap": gap, "presolve": False},
    )
    if found.x is None:
        raise RuntimeError(f"the solver found no answer though there is one: {found.message}")
    return [int(place) for place in np.flatnonzero(found.x > 0.5)]
