"""What a campaign says of itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import striking, table
from tests.chaos.campaign import Campaign, CannotStrikeError, Turn
from tests.chaos.job import Outcome
from tests.chaos.pods import PodCampaign
from tests.chaos.schedule import POD_STRATEGIES, Kind, Strategy

DONE = Outcome(
    3,
    0,
    "all-reduce",
    {"kill of worker": 2, "EIO of master": 1},
    in_pairs=1,
    ending="succeeded",
    seconds=1800.0,
    commit="abc",
)
FAILED = Outcome(3, 1, "async", {"kill of worker": 4}, problem="Problem: no end\nmore", seconds=1800.0, commit="def")


def test_the_table_counts_what_struck_whom_and_names_what_failed() -> None:
    numbers = table.counts([DONE, FAILED])
    text = table.markdown(numbers, {"seed": 3, "kinds": {"KILL": 0, "EIO": 0}})

    assert (numbers["faults"], numbers["in_pairs"], numbers["succeeded"], numbers["hours"]) == (7, 1, 1, 1.0)
    assert numbers["struck"]["kill"] == {"worker": 6}
    assert "| fault | worker | master | together |" in text
    assert "| freeze |" not in text, "it cannot be made there"
    assert "| kill | 6 |  | 6 |" in text and "| EIO |  | 1 | 1 |" in text
    assert "job 1 (async, commit def): Problem: no end" in text and "seed 3, 2 commits from abc to def" in text


def test_a_job_that_failed_and_passes_with_other_code_is_told_as_mended() -> None:
    numbers = table.counts([DONE, FAILED, replace(DONE, number=1, commit="ghi")])
    text = table.markdown(numbers, {"seed": 3, "kinds": {"KILL": 0, "EIO": 0}})

    assert (numbers["faults"], numbers["failed"], [one["job"] for one in numbers["mended"]]) == (10, [], [1])
    assert "0 failed, 1 had failed until what they found was mended" in text
    assert "mended:\n\n- job 1 (async, commit def): Problem: no end" in text


def test_a_job_that_failed_is_struck_again_first_once_the_code_is_another() -> None:
    same = Turn([DONE, FAILED], faults=100, until=float("inf"), commit="def")
    other = Turn([DONE, FAILED], faults=100, until=float("inf"), commit="ghi")

    assert same.next() == 2
    assert [other.next(), other.next()] == [1, 2]
    other.add(replace(DONE, number=1, commit="ghi"))
    assert (len(same.failed), len(other.failed)) == (1, 0)


def test_a_page_quotes_the_table_between_its_marks(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "campaign", seed=3)
    with (campaign.directory / "outcomes.jsonl").open("w") as file:
        file.write(json.dumps(DONE.__dict__) + "\n")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- chaos: begin -->\nold\n<!-- chaos: end -->\nafter\n")

    table.write(campaign, page)
    table.write(campaign, page)

    assert page.read_text().startswith("before\n<!-- chaos: begin -->\n3 faults")
    assert page.read_text().endswith("<!-- chaos: end -->\nafter\n") and "old" not in page.read_text()
    assert json.loads((campaign.directory / "table.json").read_text())["faults"] == 3


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")

    with pytest.raises(SystemExit, match="chaos: begin"):
        table.write(Campaign(tmp_path / "campaign", seed=3), page)
    assert page.read_text() == "nothing here\n"


def test_a_campaign_that_goes_on_has_the_seed_it_began_with(tmp_path: Path) -> None:
    Campaign(tmp_path, seed=3)

    assert Campaign(tmp_path, seed=4).seed == 3


def test_kinds_that_are_new_strike_from_the_next_job_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(striking, "available", lambda: frozenset({Kind.KILL}))
    before = Campaign(tmp_path, seed=3).plan(1)
    (tmp_path / "outcomes.jsonl").write_text(json.dumps(FAILED.__dict__) + "\n")
    monkeypatch.setattr(striking, "available", lambda: frozenset({Kind.KILL, Kind.FREEZE}))
    campaign = Campaign(tmp_path, seed=3)

    assert campaign.plan(1) == before
    assert {fault.kind for fault in campaign.plan(2).faults} == {Kind.KILL, Kind.FREEZE}
    assert Campaign(tmp_path, seed=3).plan(2) == campaign.plan(2)


def test_strategies_that_are_new_in_a_campaign_of_pods_are_those_of_later_jobs(tmp_path: Path) -> None:
    (tmp_path / "campaign.json").write_text(json.dumps({"seed": 3, "strategies": {"PODS": 0}}))
    (tmp_path / "outcomes.jsonl").write_text(json.dumps(FAILED.__dict__) + "\n")
    campaign = PodCampaign(tmp_path, seed=3)

    assert {campaign.plan(number).strategy for number in (0, 1)} == {Strategy.PODS}
    assert {campaign.plan(number).strategy for number in (2, 3, 4)} == set(POD_STRATEGIES)
    assert json.loads((tmp_path / "campaign.json").read_text())["strategies"]["HYBRID_PODS"] == 2


def test_a_campaign_is_not_gone_on_with_where_not_all_of_its_kinds_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(striking, "available", lambda: frozenset({Kind.KILL, Kind.LOSSY}))
    Campaign(tmp_path, seed=3)
    monkeypatch.setattr(striking, "available", lambda: frozenset({Kind.KILL}))
    campaign = Campaign(tmp_path, seed=3)

    with pytest.raises(CannotStrikeError, match="cannot be made here: lossy network"):
        campaign.run(faults=100, seconds=1.0, at_once=1, tell=print)
    with pytest.raises(CannotStrikeError, match="iptables"):
        campaign.repeat(1)
    assert not campaign.outcomes(), "no job was struck with fewer faults than it has"


def test_those_who_run_jobs_at_the_same_time_take_each_number_once_and_go_on_after_those_that_are_done() -> None:
    turn = Turn([replace(DONE, number=1)], faults=10, until=float("inf"))

    assert [turn.next(), turn.next(), turn.next()] == [0, 2, 3]
    turn.add(replace(FAILED, number=2))
    assert (turn.struck, [one.number for one in turn.failed]) == (7, [2])
    turn.add(replace(DONE, number=0))
    assert turn.next() is None
