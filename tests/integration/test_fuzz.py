"""Runs every target of `make fuzz` with its corpus and some thousand new inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import table, targets
from tests.fuzz.campaign import Campaign

INPUTS, SEED = 3000, 17


@pytest.mark.parametrize("name", targets.names())
def test_every_input_of_the_corpus_passes_within_its_memory_limit(name: str) -> None:
    target = targets.load(name)

    inputs = target.inputs()

    assert len(inputs) > 1, f"{name} has no seeds and no corpus"
    for data in inputs:
        target.fuzz_one(data)  # loads lazily imported modules
    for data in inputs:
        target.try_bounded(data)


@pytest.mark.parametrize("name", targets.names())
def test_a_quick_pass_finds_nothing(name: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    messages: list[str] = []
    campaign = Campaign(name, tmp_path, SEED)

    assert campaign.run(INPUTS, messages.append), "\n".join(messages)

    assert campaign.progress.inputs >= INPUTS


def test_a_campaign_continues_where_it_stopped(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    Campaign("traces", tmp_path, SEED).run(1000, lambda message: None)

    continued = Campaign("traces", tmp_path, seed=99)

    assert continued.progress.seed == SEED
    assert continued.progress.inputs >= 1000 and continued.progress.parts == 1
    assert continued.run(1000, lambda message: None) and continued.progress.parts == 1
    assert continued.run(2000, lambda message: None) and continued.progress.parts == 2


def test_the_table_lists_inputs_and_findings_of_every_target(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- fuzz: begin -->\n<!-- fuzz: end -->\nafter\n")
    (tmp_path / "traces.json").write_text('{"target": "traces", "seed": 1, "inputs": 12345}')

    table.write(tmp_path, page)

    lines = page.read_text().splitlines()
    assert len(lines) == len(targets.names()) + 6
    assert any(line.startswith("| `traces` | Traces of the simulator") and "| 12,345 | 0 |" in line for line in lines)
