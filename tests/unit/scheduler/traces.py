"""The measurements of Pollux's artifact, if the machine has them beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

TRACES = Path(__file__).resolve().parents[4] / "shared" / "data" / "sched" / "pollux-osdi21" / "traces"

needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the traces of Pollux's artifact (OSDI'21) are not on this machine"
)
