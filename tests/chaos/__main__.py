"""`python -m tests.chaos`: a campaign of faults, or one job of it again; see `--help` and docs/reliability.md."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.chaos import job, table
from tests.chaos.campaign import ROOT, Campaign, CannotStrikeError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--directory", type=Path, help="where the campaign is kept, by default below build/")
    parser.add_argument("--ledger", type=Path, help="where its outcomes are kept, if not there: to be committed")
    parser.add_argument("--seed", type=int, default=1, help="of a campaign that begins; one that goes on has its own")
    parser.add_argument(
        "--faults", type=int, default=10_000, help="until so many struck, those of earlier runs included"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="or no job is begun after so many")
    parser.add_argument("--at_once", type=int, default=1, help="jobs at the same time; each keeps about two cores busy")
    parser.add_argument("--job", type=int, help="only this job, again; what is left of it is kept")
    parser.add_argument("--cluster", action="store_true", help="jobs of pods, on a Kubernetes that is started for it")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # a network and mounts of its own
    parser.add_argument("--plan", type=int, metavar="JOB", help="print the faults of this job")
    parser.add_argument(
        "--table", type=Path, metavar="PAGE", help="write what struck and what came of it into this page"
    )
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that jobs are ended
    directory = (given.directory or ROOT / "build" / ("chaos-pods" if given.cluster else "chaos")).resolve()
    kind = _pods() if given.cluster else Campaign
    campaign = kind(directory, given.seed, given.ledger and given.ledger.resolve())
    if given.plan is not None:
        for fault in campaign.plan(given.plan).faults:
            print(f"{fault.after_s:6.2f} s later: {fault}, {fault.lasts_s:.1f} s")
        return 0
    if given.job is not None:
        inside = given.inside
        outcome = job.run(campaign.plan(given.job), directory) if inside else campaign.repeat(given.job)
        print(outcome)
        return 1 if outcome.problem else 0
    if given.table is not None:
        table.write(campaign, given.table)
        return 0
    is_well = campaign.run(given.faults, given.seconds, given.at_once, lambda told: print(told, flush=True))
    table.write(campaign)
    return 0 if is_well else 1


def _pods() -> type[Campaign]:
    from tests.chaos.pods import PodCampaign  # imported here: it needs what only tests of a cluster need

    return PodCampaign


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CannotStrikeError as exc:
        sys.exit(f"error: {exc}")
