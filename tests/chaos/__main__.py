"""`python -m tests.chaos`: runs a campaign of faults, or repeats one job of it; see docs/reliability.md."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.chaos import job, table
from tests.chaos.campaign import ROOT, Campaign, UnavailableFaultsError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--directory", type=Path, help="directory of the campaign; default: below build/")
    parser.add_argument("--ledger", type=Path, help="directory of its outcomes, if another: can be committed")
    parser.add_argument("--seed", type=int, default=1, help="seed of a new campaign; a continued one keeps its own")
    parser.add_argument(
        "--faults", type=int, default=10_000, help="number of faults to inject, including those of earlier runs"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no job after this time")
    parser.add_argument("--concurrency", type=int, default=1, help="jobs at a time; each uses about two cores")
    parser.add_argument("--job", type=int, help="repeat only this job and keep its files")
    parser.add_argument(
        "--cluster", action="store_true", help="run jobs as pods, on a Kubernetes cluster that is started for them"
    )
    parser.add_argument(
        "--inside", action="store_true", help=argparse.SUPPRESS
    )  # runs inside a network and mounts of its own
    parser.add_argument("--plan", type=int, metavar="JOB", help="print the faults of this job")
    parser.add_argument("--table", type=Path, metavar="PAGE", help="write the faults and their outcomes into this page")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that jobs are stopped
    directory = (options.directory or ROOT / "build" / ("chaos-pods" if options.cluster else "chaos")).resolve()
    campaign_class = _pod_campaign() if options.cluster else Campaign
    campaign = campaign_class(directory, options.seed, options.ledger and options.ledger.resolve())
    if options.plan is not None:
        for fault in campaign.plan(options.plan).faults:
            print(f"{fault.delay_s:6.2f} s later: {fault}, {fault.duration_s:.1f} s")
        return 0
    if options.job is not None:
        inside = options.inside
        outcome = job.run(campaign.plan(options.job), directory) if inside else campaign.repeat(options.job)
        print(outcome)
        return 1 if outcome.problem else 0
    if options.table is not None:
        table.write(campaign, options.table)
        return 0
    has_passed = campaign.run(
        options.faults, options.seconds, options.concurrency, lambda message: print(message, flush=True)
    )
    table.write(campaign)
    return 0 if has_passed else 1


def _pod_campaign() -> type[Campaign]:
    from tests.chaos.pods import PodCampaign  # imported here: it needs the packages of cluster tests

    return PodCampaign


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UnavailableFaultsError as exc:
        sys.exit(f"error: {exc}")
