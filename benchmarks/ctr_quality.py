"""How well the click models of the zoo predict: logloss and AUC on the Criteo set, beside DeepCTR-Torch and FuxiCTR.

    python benchmarks/ctr_quality.py [--quick] [--models a,b] [--seeds N] [--no-peer] [--keep DIR] [--json FILE]

Rows are in the order of time: the first 80 % train, the next 10 % choose the epoch, the last 10 % test. Test rows are
scored once, at the end, when all models are trained. With --keep each model's predictions are written to DIR, and not
made again by the next run: a run that was interrupted goes on.

Models train by a loop of ours in one process; some of them also as jobs, from a ctr.yaml with nothing but data, label
and model: as it is, and on two ps with two workers in hybrid and asynchronous mode.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import table
import torch
from ctr import jobs, ours, rows
from ctr.ours import Floats
from peers import environment
from rich.progress import track
from sklearn.metrics import log_loss, roc_auc_score

from elasticdl.ctr.models.catalog import MODELS_BY_NAME

PEERS = Path(__file__).parent / "peers"
TORCH = [name for name, known in MODELS_BY_NAME.items() if not known.is_keras]
GOAL_LOSS, GOAL_AUC = 0.4915, 0.7540
QUICK_ROWS = 20_000
NAMES = {"ours": "", "deepctr": "DeepCTR-Torch 0.3.0", "fuxictr": "FuxiCTR 2.3.10"}
JOBS = ("deepfm", "dcn_v2")  # those that are trained as jobs, too
GOAL_CONFIG, GOAL_PS = 0.001, 0.999  # logloss above the hand-written one; AUC over that of one process
THEIRS = {"deepctr": ("wide_deep", "deepfm", "dcn", "xdeepfm"), "fuxictr": ("deepfm", "dcn_v2")}


@dataclass(frozen=True, slots=True)
class Scores:
    """Of one model, by seed."""

    losses: list[float]
    aucs: list[float]

    @classmethod
    def of(cls, labels: rows.Reals, predictions: Sequence[Floats]) -> Scores:
        clipped = [np.clip(one, 1e-7, 1 - 1e-7) for one in predictions]
        return cls(
            [float(log_loss(labels, one)) for one in clipped], [float(roc_auc_score(labels, one)) for one in clipped]
        )

    @property
    def loss(self) -> float:
        return statistics.median(self.losses)

    @property
    def auc(self) -> float:
        return statistics.median(self.aucs)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=rows.SAMPLE, metavar="FILE", help="the set as .tsv.xz")
    parser.add_argument("--models", default=",".join(TORCH), metavar="NAMES", help="those of the zoo to train")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help=f"one seed, the first {QUICK_ROWS:,} rows, three models, jobs of one"
    )
    parser.add_argument("--no-peer", action="store_true", help="without the peers, installed on the first run")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep predictions here, and use those that are")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    names = ["lr", "deepfm", "dcn_v2"] if options.quick else options.models.split(",")
    if unknown := [name for name in names if name not in TORCH]:
        parser.error(f"--models: expected some of {', '.join(TORCH)}. Received: {', '.join(unknown)}")
    if not options.data.exists():
        parser.error(f"--data: {options.data} is not there; the set is Criteo's display advertising challenge")
    torch.set_num_threads(1)
    raw = rows.read(options.data, QUICK_ROWS if options.quick else 0)
    seeds = range(1 if options.quick else options.seeds)
    peers = {} if options.no_peer else {who: _kept(models, names) for who, models in THEIRS.items()}
    as_jobs = _kept(JOBS[:1] if options.quick else JOBS, names)
    with tempfile.TemporaryDirectory() as place:
        keep = options.keep or Path(place)
        keep.mkdir(parents=True, exist_ok=True)
        found = _train(raw, options.data, {"ours": names, **peers, **dict.fromkeys(jobs.OPTIONS, as_jobs)}, seeds, keep)
    end = raw.train + raw.valid
    valid = {who: Scores.of(raw.labels[raw.train : end], [p[: raw.valid] for p in ps]) for who, ps in found.items()}
    test = {who: Scores.of(raw.labels[end:], [p[raw.valid :] for p in ps]) for who, ps in found.items()}
    made = [*_rows(names, peers, test, valid), *_rows_of_jobs(as_jobs, test)]
    of = f"{len(seeds)} seeds: median, of jobs mean, lowest and highest"
    title = f"Clicks: {len(raw.labels):,} rows of Criteo's set ({of})"
    table.show(title, made, notes=[table.machine()])
    if options.json:
        table.write(options.json, made)
    return 0


def _kept(models: Sequence[str], names: Sequence[str]) -> list[str]:
    return [name for name in models if name in names]


# ---- training


def _train(
    raw: rows.Raw, data: Path, wanted: dict[str, list[str]], seeds: Sequence[int], keep: Path
) -> dict[tuple[str, str], list[Floats]]:
    """Predictions for the rows behind the training part, by who and which model, seed by seed."""
    todo = [(who, name, seed) for seed in seeds for who, names in wanted.items() for name in names]
    missing = [one for one in todo if not _file(keep, *one).exists()]
    if missing:
        runs = _runs(raw, data, keep, {who for who, _, _ in missing})
        for who, name, seed in track(missing, f"training {len(missing)} models"):
            started = time.monotonic()
            runs[who](name, seed)
            took_s = time.monotonic() - started
            print(f"{who} {name}, seed {seed}: done in {took_s:.0f} s", file=sys.stderr, flush=True)
    found: dict[tuple[str, str], list[Floats]] = {}
    for who, name, seed in todo:
        found.setdefault((who, name), []).append(np.load(_file(keep, who, name, seed), allow_pickle=False))
    return found


def _runs(raw: rows.Raw, data: Path, keep: Path, who: set[str]) -> dict[str, Callable[[str, int], None]]:
    runs: dict[str, Callable[[str, int], None]] = {}
    if "ours" in who:
        prepared = ours.Table.of(raw, data)
        runs["ours"] = lambda name, seed: np.save(_file(keep, "ours", name, seed), ours.train(name, prepared, seed))
    if by_jobs := who & set(jobs.OPTIONS):
        made = jobs.Jobs.of(raw, data, keep / "jobs")
        runs |= {manner: _job(made, manner, keep) for manner in by_jobs}
    written, those = keep / "rows.npz", who & set(THEIRS)
    if those:
        # Test rows have no labels here: a peer cannot learn from them by mistake.
        known = np.where(np.arange(len(raw.labels)) < raw.train + raw.valid, raw.labels, 0.0).astype(np.float32)
        sizes: dict[str, Any] = {"train": raw.train, "valid": raw.valid}
        np.savez(written, labels=known, numbers=raw.numbers, values=raw.values, **sizes)
    for peer in those:
        runs[peer] = _peer(
            peer, {"deepctr": environment.deepctr, "fuxictr": environment.fuxictr}[peer](), written, keep
        )
    return runs


def _job(made: jobs.Jobs, manner: str, keep: Path) -> Callable[[str, int], None]:
    return lambda name, seed: np.save(_file(keep, manner, name, seed), made.train(manner, name, seed))


def _peer(who: str, programs: Path, written: Path, keep: Path) -> Callable[[str, int], None]:
    def run(name: str, seed: int) -> None:
        script, out = PEERS / f"{who}_quality.py", _file(keep, who, name, seed)
        subprocess.run([programs / "python", "-W", "ignore", script, written, name, str(seed), out], check=True)

    return run


def _file(keep: Path, who: str, name: str, seed: int) -> Path:
    return keep / f"{who}-{name}-{seed}.npy"


# ---- the table


def _rows(
    names: Sequence[str],
    peers: dict[str, list[str]],
    test: dict[tuple[str, str], Scores],
    valid: dict[tuple[str, str], Scores],
) -> list[table.Row]:
    made = []
    for name in names:
        us = test["ours", name]
        those = [who for who, models in peers.items() if name in models]
        for who in those or [""]:
            them = test.get((who, name))
            made += [
                _row(
                    f"{name}, logloss",
                    us.losses,
                    them.losses if them else None,
                    who,
                    us.loss < them.loss if them else None,
                ),
                _row(f"{name}, AUC", us.aucs, them.aucs if them else None, who, us.auc > them.auc if them else None),
            ]
    best = min(names, key=lambda name: valid["ours", name].loss)
    us = test["ours", best]
    made += [
        table.Row(f"chosen: {best}, logloss", "", f"{us.loss:.4f}", None, "", f"≤ {GOAL_LOSS}", us.loss <= GOAL_LOSS),
        table.Row(f"chosen: {best}, AUC", "", f"{us.auc:.4f}", None, "", f"≥ {GOAL_AUC}", us.auc >= GOAL_AUC),
    ]
    return made


def _rows_of_jobs(names: Sequence[str], test: dict[tuple[str, str], Scores]) -> list[table.Row]:
    """A job against the loop in one process, which is written by hand."""
    made = []
    for name in names:
        us, alone = test["config", name].losses, test["ours", name].losses
        more = statistics.mean(us) - statistics.mean(alone)
        measure = f"{name}, logloss: the config with nothing but data, label and model"
        goal = f"{more:+.4f}: within {GOAL_CONFIG} of the hand-written one"
        spreads = _spread(us, statistics.mean), _spread(alone, statistics.mean)
        made.append(table.Row(measure, "", *spreads, "hand-written", goal, more <= GOAL_CONFIG))
    for name in names:
        for manner, words in (("hybrid", "hybrid"), ("async", "asynchronous")):
            us, alone = test[manner, name].aucs, test["ours", name].aucs
            share = statistics.mean(us) / statistics.mean(alone)
            measure = f"{name}, AUC: the same on ps with {words} workers"
            goal = f"{share:.4f}: within 0.1 % of the single-process AUC"
            spreads = _spread(us, statistics.mean), _spread(alone, statistics.mean)
            made.append(table.Row(measure, "", *spreads, "single process", goal, share >= GOAL_PS))
    return made


def _row(measure: str, us: list[float], them: list[float] | None, who: str, met: bool | None) -> table.Row:
    goal = "" if them is None else "better"
    return table.Row(measure, "", _spread(us), _spread(them) if them else None, NAMES.get(who, ""), goal, met)


def _spread(values: list[float], middle_of: Callable[[list[float]], float] = statistics.median) -> str:
    middle = middle_of(values)
    return f"{middle:.4f} ({min(values):.4f}–{max(values):.4f})" if len(values) > 1 else f"{middle:.4f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
