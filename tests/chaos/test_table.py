"""Tables of a campaign, and campaigns that are continued."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import injection, table
from tests.chaos.campaign import Campaign, JobNumbers, UnavailableFaultsError
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


def test_the_table_counts_faults_by_kind_and_role_and_names_failures() -> None:
    numbers = table.counts([DONE, FAILED])
    text = table.markdown(numbers, {"seed": 3, "kinds": {"KILL": 0, "EIO": 0}})

    assert (numbers["faults"], numbers["in_pairs"], numbers["succeeded"], numbers["hours"]) == (7, 1, 1, 1.0)
    assert numbers["injected"]["kill"] == {"worker": 6}
    assert "| fault | worker | master | together |" in text
    assert "| freeze |" not in text, "it cannot be injected there"
    assert "| kill | 6 |  | 6 |" in text and "| EIO |  | 1 | 1 |" in text
    assert "job 1 (async, commit def): Problem: no end" in text and "seed 3, 2 commits from abc to def" in text


def test_a_job_that_failed_and_passes_with_changed_code_is_listed_as_fixed() -> None:
    numbers = table.counts([DONE, FAILED, replace(DONE, number=1, commit="ghi")])
    text = table.markdown(numbers, {"seed": 3, "kinds": {"KILL": 0, "EIO": 0}})

    assert (numbers["faults"], numbers["failed"], [failure["job"] for failure in numbers["fixed"]]) == (10, [], [1])
    assert "0 failed, 1 failed before the defect they found was fixed" in text
    assert "defect was fixed:\n\n- job 1 (async, commit def): Problem: no end" in text


def test_a_job_that_failed_is_repeated_first_once_the_code_has_changed() -> None:
    same = JobNumbers([DONE, FAILED], faults=100, until=float("inf"), commit="def")
    changed = JobNumbers([DONE, FAILED], faults=100, until=float("inf"), commit="ghi")

    assert same.next() == 2
    assert [changed.next(), changed.next()] == [1, 2]
    changed.add(replace(DONE, number=1, commit="ghi"))
    assert (len(same.failed), len(changed.failed)) == (1, 0)


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


def test_a_continued_campaign_keeps_its_seed(tmp_path: Path) -> None:
    Campaign(tmp_path, seed=3)

    assert Campaign(tmp_path, seed=4).seed == 3


def test_new_kinds_of_faults_are_used_from_the_next_job_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "available_kinds", lambda: frozenset({Kind.KILL}))
    before = Campaign(tmp_path, seed=3).plan(1)
    (tmp_path / "outcomes.jsonl").write_text(json.dumps(FAILED.__dict__) + "\n")
    monkeypatch.setattr(injection, "available_kinds", lambda: frozenset({Kind.KILL, Kind.FREEZE}))
    campaign = Campaign(tmp_path, seed=3)

    assert campaign.plan(1) == before
    assert {fault.kind for fault in campaign.plan(2).faults} == {Kind.KILL, Kind.FREEZE}
    assert Campaign(tmp_path, seed=3).plan(2) == campaign.plan(2)


def test_new_strategies_of_a_campaign_of_pods_are_used_from_the_next_job_on(tmp_path: Path) -> None:
    (tmp_path / "campaign.json").write_text(json.dumps({"seed": 3, "strategies": {"PODS": 0}}))
    (tmp_path / "outcomes.jsonl").write_text(json.dumps(FAILED.__dict__) + "\n")
    campaign = PodCampaign(tmp_path, seed=3)

    assert {campaign.plan(number).strategy for number in (0, 1)} == {Strategy.PODS}
    assert {campaign.plan(number).strategy for number in (2, 3, 4)} == set(POD_STRATEGIES)
    assert json.loads((tmp_path / "campaign.json").read_text())["strategies"]["HYBRID_PODS"] == 2


def test_a_campaign_is_not_continued_where_some_of_its_faults_cannot_be_injected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injection, "available_kinds", lambda: frozenset({Kind.KILL, Kind.LOSSY}))
    Campaign(tmp_path, seed=3)
    monkeypatch.setattr(injection, "available_kinds", lambda: frozenset({Kind.KILL}))
    campaign = Campaign(tmp_path, seed=3)

    with pytest.raises(UnavailableFaultsError, match="cannot be injected here: lossy network"):
        campaign.run(faults=100, seconds=1.0, concurrency=1, report=print)
    with pytest.raises(UnavailableFaultsError, match="iptables"):
        campaign.repeat(1)
    assert not campaign.outcomes(), "no job runs with fewer faults than planned"


def test_concurrent_runners_get_each_number_once_and_none_that_is_done() -> None:
    numbers = JobNumbers([replace(DONE, number=1)], faults=10, until=float("inf"))

    assert [numbers.next(), numbers.next(), numbers.next()] == [0, 2, 3]
    numbers.add(replace(FAILED, number=2))
    assert (numbers.injected, [outcome.number for outcome in numbers.failed]) == (7, [2])
    numbers.add(replace(DONE, number=0))
    assert numbers.next() is None
