"""For all tests."""

from hypothesis import settings

# No test is timed: machines are shared, and an example that took long once says nothing.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
