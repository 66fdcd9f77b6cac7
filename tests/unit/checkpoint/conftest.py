"""Small models on one thread, as in the zoo's tests."""

from tests.unit.zoo.conftest import _one_thread

__all__ = ["_one_thread"]
