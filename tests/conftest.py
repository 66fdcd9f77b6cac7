"""Settings of all tests: how many examples a property tries, and that none of them is timed."""

from __future__ import annotations

from hypothesis import settings

# Machines are shared: an example that took long once says nothing, so no profile has a deadline.
# `make test` tries few examples of each property; `make test-thorough` tries many (--hypothesis-profile=thorough).
settings.register_profile("quick", deadline=None, max_examples=30, stateful_step_count=30)
settings.register_profile("thorough", deadline=None, max_examples=200, stateful_step_count=50)
settings.load_profile("quick")
