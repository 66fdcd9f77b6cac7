"""Settings of all tests: how many examples a property tries, that none of them is timed, and which tests begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

UNIT_TESTS = Path(__file__).parent / "unit"

# Machines are shared: an example that took long once says nothing, so no profile has a deadline.
# `make test` tries few examples of each property; `make test-thorough` tries many (--hypothesis-profile=thorough).
settings.register_profile("quick", deadline=None, max_examples=30, stateful_step_count=30)
settings.register_profile("thorough", deadline=None, max_examples=200, stateful_step_count=50)
settings.load_profile("quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unit tests come last: many short files keep all processes busy until the end of a parallel run.

    Files and the tests in each stay in the random order that they have when this is called.
    """
    items.sort(key=lambda item: UNIT_TESTS in item.path.parents)
