"""What trains well where nothing is said. One place, so that the zoo, the config and the benchmark agree."""

from __future__ import annotations

BATCH_SIZE = 1024
LEARNING_RATE = 0.001
