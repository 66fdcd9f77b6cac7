"""The page of policies describes all of them correctly."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.scheduler import policies

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"


@pytest.mark.parametrize("name", policies.POLICY_REGISTRY)
def test_every_policy_stands_on_the_page_with_its_sizes_and_its_batch(name: str) -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and f"`{name}`" in line]
    policy = policies.load_policy(name)

    assert len(lines) == 1
    _, _, _, jobs, decides, batch, _ = (cell.strip() for cell in lines[0].split("|"))
    assert jobs == ("rigid" if policy.is_rigid else "elastic")
    assert batch == ("adapts" if policy.adapts_batch else "own")
    assert ("events" in decides) == policy.decides_on_events
    assert not policy.interval_s or f"{policy.interval_s:,.0f} s" in decides
