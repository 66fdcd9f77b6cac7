"""How well the click models of the zoo predict: logloss and AUC on the Criteo set, beside DeepCTR-Torch and FuxiCTR.

    python benchmarks/ctr_quality.py [--quick] [--models a,b] [--seeds N] [--no-peer] [--keep DIR] [--json FILE]

Rows are in the order of time: the first 80 % are for training, the next 10 % for choosing the epoch, and the last 10 %
for testing. Test rows are scored once, when all models are trained. With --keep each model's predictions are written to
DIR and reused by the next run, so that an interrupted run can continue.

Models train in a loop of ours in one process; some of them also as jobs, from a ctr.yaml with nothing but data, label
and model: without further options, and on two ps with two workers in hybrid and asynchronous mode.
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
from ctr import jobs, local_training, rows
from ctr.local_training import Floats
from peers import environment
from rich.progress import track
from sklearn.metrics import log_loss, roc_auc_score

from elasticdl.ctr.models.catalog import MODELS_BY_NAME

PEERS = Path(__file__).parent / "peers"
TORCH_MODELS = [name for name, model in MODELS_BY_NAME.items() if not model.is_keras]
GOAL_LOSS, GOAL_AUC = 0.4915, 0.7540
QUICK_ROWS = 20_000
PEER_NAMES = {"ours": "", "deepctr": "DeepCTR-Torch 0.3.0", "fuxictr": "FuxiCTR 2.3.10"}
JOB_MODELS = ("deepfm", "dcn_v2")  # models that are trained as jobs, too
GOAL_CONFIG, GOAL_PS = 0.001, 0.999  # logloss minus the hand-written one; AUC over that of one process
PEER_MODELS = {"deepctr": ("wide_deep", "deepfm", "dcn", "xdeepfm"), "fuxictr": ("deepfm", "dcn_v2")}


@dataclass(frozen=True, slots=True)
class ModelScores:
    """Losses and AUCs of one model, by seed."""

    losses: list[float]
    aucs: list[float]

    @classmethod
    def from_predictions(cls, labels: rows.Reals, predictions: Sequence[Floats]) -> ModelScores:
        clipped = [np.clip(probabilities, 1e-7, 1 - 1e-7) for probabilities in predictions]
        return cls(
            [float(log_loss(labels, probabilities)) for probabilities in clipped],
            [float(roc_auc_score(labels, probabilities)) for probabilities in clipped],
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
    parser.add_argument("--models", default=",".join(TORCH_MODELS), metavar="NAMES", help="models of the zoo to train")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help=f"one seed, the first {QUICK_ROWS:,} rows, three models, jobs of one"
    )
    parser.add_argument("--no-peer", action="store_true", help="without the peers, installed on the first run")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep predictions here, and reuse existing ones")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    models = ["lr", "deepfm", "dcn_v2"] if options.quick else options.models.split(",")
    if unknown := [name for name in models if name not in TORCH_MODELS]:
        parser.error(f"--models: expected names of {', '.join(TORCH_MODELS)}. Received: {', '.join(unknown)}")
    if not options.data.exists():
        parser.error(f"--data: {options.data} does not exist; the set is Criteo's display advertising challenge")
    torch.set_num_threads(1)
    criteo_rows = rows.read_rows(options.data, QUICK_ROWS if options.quick else 0)
    seeds = range(1 if options.quick else options.seeds)
    peers = (
        {}
        if options.no_peer
        else {system: _models_among(peer_models, models) for system, peer_models in PEER_MODELS.items()}
    )
    as_jobs = _models_among(JOB_MODELS[:1] if options.quick else JOB_MODELS, models)
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        predictions = _train_missing(
            criteo_rows,
            options.data,
            {"ours": models, **peers, **dict.fromkeys(jobs.OPTIONS, as_jobs)},
            seeds,
            directory,
        )
    test_start = criteo_rows.train + criteo_rows.valid
    valid = {
        system: ModelScores.from_predictions(
            criteo_rows.labels[criteo_rows.train : test_start],
            [probabilities[: criteo_rows.valid] for probabilities in by_seed],
        )
        for system, by_seed in predictions.items()
    }
    test = {
        system: ModelScores.from_predictions(
            criteo_rows.labels[test_start:], [probabilities[criteo_rows.valid :] for probabilities in by_seed]
        )
        for system, by_seed in predictions.items()
    }
    table_rows = [*_rows(models, peers, test, valid), *_rows_of_jobs(as_jobs, test)]
    seeds_text = f"{len(seeds)} seeds: median, of jobs mean, lowest and highest"
    title = f"Clicks: {len(criteo_rows.labels):,} rows of Criteo's set ({seeds_text})"
    table.show(title, table_rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, table_rows)
    return 0


def _models_among(models: Sequence[str], names: Sequence[str]) -> list[str]:
    return [name for name in models if name in names]


# ---- training


def _train_missing(
    criteo_rows: rows.CriteoRows,
    data: Path,
    models_by_system: dict[str, list[str]],
    seeds: Sequence[int],
    directory: Path,
) -> dict[tuple[str, str], list[Floats]]:
    """Trains what has no predictions in `directory` yet. Returns those of all seeds, by system and model."""
    tasks = [(system, model, seed) for seed in seeds for system, models in models_by_system.items() for model in models]
    missing = [task for task in tasks if not _prediction_path(directory, *task).exists()]
    if missing:
        trainers = _trainers(criteo_rows, data, directory, {system for system, _, _ in missing})
        for system, model, seed in track(missing, f"training {len(missing)} models"):
            started_at = time.monotonic()
            trainers[system](model, seed)
            duration_s = time.monotonic() - started_at
            print(f"{system} {model}, seed {seed}: done in {duration_s:.0f} s", file=sys.stderr, flush=True)
    predictions: dict[tuple[str, str], list[Floats]] = {}
    for system, model, seed in tasks:
        predictions.setdefault((system, model), []).append(
            np.load(_prediction_path(directory, system, model, seed), allow_pickle=False)
        )
    return predictions


def _trainers(
    criteo_rows: rows.CriteoRows, data: Path, directory: Path, systems: set[str]
) -> dict[str, Callable[[str, int], None]]:
    trainers: dict[str, Callable[[str, int], None]] = {}
    if "ours" in systems:
        encoded_rows = local_training.EncodedRows.from_criteo(criteo_rows, data)
        trainers["ours"] = lambda model, seed: np.save(
            _prediction_path(directory, "ours", model, seed), local_training.train(model, encoded_rows, seed)
        )
    if job_modes := systems & set(jobs.OPTIONS):
        ctr_jobs = jobs.CtrJobs.prepare(criteo_rows, data, directory / "jobs")
        trainers |= {mode: _job_trainer(ctr_jobs, mode, directory) for mode in job_modes}
    rows_path, peers = directory / "rows.npz", systems & set(PEER_MODELS)
    if peers:
        # Test rows have no labels here, so that a peer cannot learn from them by mistake.
        labels = np.where(
            np.arange(len(criteo_rows.labels)) < criteo_rows.train + criteo_rows.valid, criteo_rows.labels, 0.0
        ).astype(np.float32)
        sizes: dict[str, Any] = {"train": criteo_rows.train, "valid": criteo_rows.valid}
        np.savez(rows_path, labels=labels, numbers=criteo_rows.numbers, values=criteo_rows.values, **sizes)
    for peer in peers:
        trainers[peer] = _peer_trainer(
            peer, {"deepctr": environment.deepctr, "fuxictr": environment.fuxictr}[peer](), rows_path, directory
        )
    return trainers


def _job_trainer(ctr_jobs: jobs.CtrJobs, mode: str, directory: Path) -> Callable[[str, int], None]:
    return lambda model, seed: np.save(
        _prediction_path(directory, mode, model, seed), ctr_jobs.train(mode, model, seed)
    )


def _peer_trainer(system: str, programs: Path, rows_path: Path, directory: Path) -> Callable[[str, int], None]:
    def run(model: str, seed: int) -> None:
        script, output = PEERS / f"{system}_quality.py", _prediction_path(directory, system, model, seed)
        subprocess.run([programs / "python", "-W", "ignore", script, rows_path, model, str(seed), output], check=True)

    return run


def _prediction_path(directory: Path, system: str, model: str, seed: int) -> Path:
    return directory / f"{system}-{model}-{seed}.npy"


# ---- the table


def _rows(
    models: Sequence[str],
    peers: dict[str, list[str]],
    test: dict[tuple[str, str], ModelScores],
    valid: dict[tuple[str, str], ModelScores],
) -> list[table.Row]:
    table_rows = []
    for model in models:
        ours = test["ours", model]
        systems = [system for system, peer_models in peers.items() if model in peer_models]
        for system in systems or [""]:
            theirs = test.get((system, model))
            table_rows += [
                _row(
                    f"{model}, logloss",
                    ours.losses,
                    theirs.losses if theirs else None,
                    system,
                    ours.loss < theirs.loss if theirs else None,
                ),
                _row(
                    f"{model}, AUC",
                    ours.aucs,
                    theirs.aucs if theirs else None,
                    system,
                    ours.auc > theirs.auc if theirs else None,
                ),
            ]
    best = min(models, key=lambda model: valid["ours", model].loss)
    ours = test["ours", best]
    table_rows += [
        table.Row(
            f"chosen: {best}, logloss", "", f"{ours.loss:.4f}", None, "", f"≤ {GOAL_LOSS}", ours.loss <= GOAL_LOSS
        ),
        table.Row(f"chosen: {best}, AUC", "", f"{ours.auc:.4f}", None, "", f"≥ {GOAL_AUC}", ours.auc >= GOAL_AUC),
    ]
    return table_rows


def _rows_of_jobs(models: Sequence[str], test: dict[tuple[str, str], ModelScores]) -> list[table.Row]:
    """Compares jobs with the loop in one process, which is written by hand."""
    table_rows = []
    for model in models:
        own_values, local_values = test["config", model].losses, test["ours", model].losses
        difference = statistics.mean(own_values) - statistics.mean(local_values)
        measure = f"{model}, logloss: the config with nothing but data, label and model"
        goal = f"{difference:+.4f}: within {GOAL_CONFIG} of the hand-written one"
        spreads = _spread(own_values, statistics.mean), _spread(local_values, statistics.mean)
        table_rows.append(table.Row(measure, "", *spreads, "hand-written", goal, difference <= GOAL_CONFIG))
    for model in models:
        for mode, mode_name in (("hybrid", "hybrid"), ("async", "asynchronous")):
            own_values, local_values = test[mode, model].aucs, test["ours", model].aucs
            ratio = statistics.mean(own_values) / statistics.mean(local_values)
            measure = f"{model}, AUC: the same on ps with {mode_name} workers"
            goal = f"{ratio:.4f}: within 0.1 % of the single-process AUC"
            spreads = _spread(own_values, statistics.mean), _spread(local_values, statistics.mean)
            table_rows.append(table.Row(measure, "", *spreads, "single process", goal, ratio >= GOAL_PS))
    return table_rows


def _row(measure: str, ours: list[float], theirs: list[float] | None, system: str, is_met: bool | None) -> table.Row:
    goal = "" if theirs is None else "better"
    return table.Row(
        measure, "", _spread(ours), _spread(theirs) if theirs else None, PEER_NAMES.get(system, ""), goal, is_met
    )


def _spread(values: list[float], middle_of: Callable[[list[float]], float] = statistics.median) -> str:
    middle = middle_of(values)
    return f"{middle:.4f} ({min(values):.4f}–{max(values):.4f})" if len(values) > 1 else f"{middle:.4f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
