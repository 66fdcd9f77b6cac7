"""Reading by loader processes: the same bits, every record accounted for, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from elasticdl.collective.tree import RankRange
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.readers.mapped import as_source
from elasticdl.spec.env import FAULTS
from elasticdl.worker.reading.loader import ItemRequests, LoaderFeed, LoaderOptions
from elasticdl.worker.reading.loader_process import ItemFetcher
from tests.integration import reading
from tests.integration.job import Job, Jobs, digest
from tests.waiting import until

SCRIPT = Path(reading.__file__)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The bits of a run of a single process without loader processes, by kind."""
    directory = tmp_path_factory.mktemp("alone")
    digests = {}
    for kind in ("items", "sampled", "stream"):
        seen = directory / kind
        seen.mkdir()
        run(kind, seen, seen / "output", 0)
        digests[kind] = digest(seen / "output")
    return digests


def arguments(kind: str, seen: Path, output: Path, num_workers: int, context: str = "") -> list[str]:
    return [str(SCRIPT), kind, str(seen), str(output), str(num_workers), *([context] if context else [])]


def run(kind: str, seen: Path, output: Path, num_workers: int, context: str = "") -> None:
    argv = [sys.executable, *arguments(kind, seen, output, num_workers, context)]
    environ = {key: value for key, value in os.environ.items() if key != FAULTS}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def launch(jobs: Jobs, kind: str, workers: str, num_workers: int, faults: str = "", *, slow: bool = False) -> Job:
    job = Job(jobs.home, f"reading-{kind}")
    seen = jobs.home / "seen"
    seen.mkdir()
    if slow:
        (seen / "slow").touch()
    options = ["--job_name", job.name, "--workers", workers, "--logical_ranks", "4", "--threads", "1"]
    return jobs.launch(
        job, ["run", "--detach", *options, *arguments(kind, seen, jobs.home / "output", num_workers)], faults
    )


def batches(seen: Path) -> dict[int, set[tuple[int, ...]]]:
    """The distinct batches of each step; a step whose round broke is computed again."""
    computed: dict[int, set[tuple[int, ...]]] = {}
    for path in seen.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            computed.setdefault(entry["step"], set()).add(tuple(entry["numbers"]))
    return computed


def numbers_by_epoch(seen: Path) -> list[Counter[int]]:
    steps_per_epoch = -(-reading.RECORDS // reading.BATCH)
    epochs = [Counter[int]() for _ in range(reading.EPOCHS)]
    for step, parts in batches(seen).items():
        epochs[step // steps_per_epoch].update(number for part in parts for number in part)
    return epochs


def children(process: Any) -> list[psutil.Process]:
    return psutil.Process(process).children(recursive=True)


def are_gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


# The bits of the first two are compared in jobs, too.
@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("items", "sampled")), "stream"]
)
def test_loader_processes_do_not_change_a_bit(kind: str, alone: dict[str, str], tmp_path: Path) -> None:
    run(kind, tmp_path, tmp_path / "output", 2)
    assert digest(tmp_path / "output") == alone[kind]


@pytest.mark.slow
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_script_with_a_main_guard_can_choose_the_start_method(
    context: str, alone: dict[str, str], tmp_path: Path
) -> None:
    run("items", tmp_path, tmp_path / "output", 1, context)
    assert digest(tmp_path / "output") == alone["items"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["items", "stream"])
def test_every_record_is_trained_once_an_epoch_although_a_worker_is_killed(
    kind: str, jobs: Jobs, alone: dict[str, str]
) -> None:
    job = launch(jobs, kind, "2:2", 1, "worker-1@8:computed=SIGKILL,worker-0@21:begin=SIGKILL")
    assert job.result()["phase"] == "succeeded", job.story()
    assert "worker-lost" in job.kinds()
    assert numbers_by_epoch(jobs.home / "seen") == [Counter(range(reading.RECORDS))] * reading.EPOCHS
    assert digest(jobs.home / "output") == alone[kind]


def test_a_sampled_order_is_the_same_in_a_job(jobs: Jobs, alone: dict[str, str]) -> None:
    job = launch(jobs, "sampled", "1:2", 2)
    assert job.result()["phase"] == "succeeded", job.story()
    assert digest(jobs.home / "output") == alone["sampled"]


def test_a_killed_worker_leaves_no_loader_process(tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    script = subprocess.Popen([sys.executable, *arguments("items", tmp_path, tmp_path / "output", 2)])
    try:
        until("two loader processes", lambda: len(children(script.pid)) == 2 and batches(tmp_path))
        loaders = children(script.pid)
    finally:
        script.kill()
        script.wait()
    until("the end of the loader processes", lambda: are_gone(loaders), 1.0)  # at once: torch looks every five seconds


def test_loader_processes_of_a_job_do_not_end_or_leave_at_sigterm(jobs: Jobs, alone: dict[str, str]) -> None:
    job = launch(jobs, "items", "1:1", 2, slow=True)
    pid = next(iter(job.wait_members(1, step=1).values()))
    loaders = until("two loader processes", lambda: children(pid))
    assert len(loaders) == 2
    for loader in loaders:
        loader.send_signal(signal.SIGTERM)
    step = job.wait_members(1, step=6)
    assert list(step.values()) == [pid] and [loader.pid for loader in children(pid)] == [
        loader.pid for loader in loaders
    ]
    (jobs.home / "seen" / "slow").unlink()
    assert job.result()["phase"] == "succeeded", job.story()
    assert "worker-left" not in job.kinds()
    assert digest(jobs.home / "output") == alone["items"]
    until("the end of the loader processes", lambda: are_gone(loaders))


def test_an_error_in_a_loader_process_ends_the_job_with_the_item(jobs: Jobs, tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "import torch, elasticdl.torch as elastic\n"
        "class Items:\n"
        "    def __len__(self): return 20\n"
        "    def __getitem__(self, number):\n"
        "        if number == 13: raise ValueError('a bad picture')\n"
        "        return torch.zeros(2), 0.0\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in elastic.join(model, optimizer, Items(), global_batch_size=4, num_workers=1):\n"
        "    for features, labels in step:\n"
        "        step.backward(model(features).mean())\n"
    )
    job = jobs.launch(Job(jobs.home, "failing"), ["run", "--detach", "--job_name", "failing", str(script)])
    result = job.result()
    assert result["exit_code"] == 2 and "item 13: ValueError: a bad picture" in result["reason"], result


def test_a_script_without_a_main_guard_gets_an_error_when_it_is_imported_again(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import torch, elasticdl.torch as elastic\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "loader = DataLoader(TensorDataset(torch.zeros(4, 2)), num_workers=1, multiprocessing_context='spawn')\n"
        "for step in elastic.join(model, optimizer, loader):\n"
        "    for (features,) in step:\n"
        "        step.backward(model(features).mean())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "put what it does under `if __name__ == '__main__':`" in done.stderr


class Logged:
    """Items are their numbers; each read appends a line to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 400

    def __getitem__(self, number: int) -> int:
        with self.path.open("a") as lines:
            lines.write(f"{number}\n")
        return number


def test_a_new_share_keeps_its_prefetched_batches(tmp_path: Path) -> None:
    plan = TrainingPlan(records=400, global_batch=20, logical_ranks=4, shuffle=False)
    fetcher = ItemFetcher(as_source(Logged(tmp_path / "reads"), "logged"), list, plan.seed)
    options = LoaderOptions(num_workers=2, prefetch_factor=2)
    feed = LoaderFeed(ItemRequests(fetcher, plan, None), plan, options, torch.device("cpu")).start()
    shares = {0: RankRange(0, 4), 5: RankRange(0, 2), 10: RankRange(0, 4), 15: RankRange(2, 2)}
    share, taken = shares[0], 0
    try:
        for step in range(plan.total_steps):
            share = shares.get(step, share)
            feed.prefetch(step, share)
            for rank in range(share.first, share.stop):
                batch = feed.read_batch(step, rank)
                assert batch is not None and batch.value == plan.rank_slice(step, rank).tolist()
                taken += batch.size
    finally:
        feed.close()
    reads = Counter(int(line) for line in (tmp_path / "reads").read_text().split())
    ahead = options.num_workers * 2 * 5  # records of the batches that were asked for when the share changed
    assert taken <= reads.total() <= taken + 2 * ahead  # the second change took nothing away
    assert max(reads.values()) == 1  # and nothing was read twice
