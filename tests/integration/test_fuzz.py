"""A quick pass of `make fuzz` over every target: what is kept, and some thousand inputs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import table, targets
from tests.fuzz.campaign import Campaign

INPUTS, SEED = 3000, 17


@pytest.mark.parametrize("name", targets.names())
def test_every_input_that_is_kept_holds_within_its_memory(name: str) -> None:
    target = targets.load(name)

    inputs = target.inputs()

    assert len(inputs) > 1, f"{name} has no seeds and no corpus"
    for data in inputs:
        target.fuzz_one(data)  # imports what is imported late
    for data in inputs:
        target.try_bounded(data)


@pytest.mark.parametrize("name", targets.names())
def test_a_quick_pass_finds_nothing(name: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    told: list[str] = []
    campaign = Campaign(name, tmp_path, SEED)

    assert campaign.run(INPUTS, told.append), "\n".join(told)

    assert campaign.progress.inputs >= INPUTS


def test_a_campaign_goes_on_where_it_was(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    Campaign("traces", tmp_path, SEED).run(1000, lambda told: None)

    again = Campaign("traces", tmp_path, seed=99)

    assert again.progress.seed == SEED
    assert again.progress.inputs >= 1000 and again.progress.parts == 1
    assert again.run(1000, lambda told: None) and again.progress.parts == 1
    assert again.run(2000, lambda told: None) and again.progress.parts == 2


def test_a_page_quotes_what_was_tried_of_every_target(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- fuzz: begin -->\n<!-- fuzz: end -->\nafter\n")
    (tmp_path / "traces.json").write_text('{"target": "traces", "seed": 1, "inputs": 12345}')

    table.write(tmp_path, page)

    lines = page.read_text().splitlines()
    assert len(lines) == len(targets.names()) + 6
    assert any(line.startswith("| `traces` | Traces of the simulator") and "| 12,345 | 0 |" in line for line in lines)
