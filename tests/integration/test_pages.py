"""The code of the guides runs as written, alone and in jobs."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.integration.job import Job, Jobs

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    "gradient-accumulation",
    "mixed-precision",
    "lr-schedulers",
    "compile",
    "trackers",
    "tutorial/03-your-own-script",
]
NEEDED = {"SummaryWriter": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}

# What a page may take for granted.
BEGINNING = """
import time
from pathlib import Path

import torch
from torch import nn

import elasticdl.torch as elastic

torch.manual_seed(0)


class Numbers(torch.utils.data.TensorDataset):
    def __getitem__(self, index):
        if Path("SLOW").exists():
            time.sleep(0.01)
        return super().__getitem__(index)


dataset = Numbers(torch.randn(RECORDS, 6), torch.randint(0, 2, (RECORDS,)))
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
JOINED = "job = elastic.join(model, optimizer, dataset, global_batch_size=8)\n"
ENDING = "\nassert job.step == job.plan.total_steps\n"


def code_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.+?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


def script_of(block: str, *, records: int = 40, slow: Path = Path("/nowhere")) -> str:
    """A whole script with the code of a page in it."""
    for word, package in NEEDED.items():
        if word in block:
            pytest.importorskip(package)
    block = re.sub(r"global_batch_size=\d+, epochs=\d+", "global_batch_size=8", block)
    beginning = BEGINNING.replace("RECORDS", str(records)).replace("SLOW", str(slow))
    return beginning + ("" if "elastic.join(" in block else JOINED) + block + ENDING


@pytest.mark.parametrize(
    "block", [pytest.param(b, id=f"{page}-{n}") for page in PAGES for n, b in enumerate(code_blocks(page))]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_the_code_of_a_page_trains_to_the_end(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CONSOLE", "off")
    script = tmp_path / "script.py"
    script.write_text(script_of(block))

    assert runpy.run_path(str(script))["job"].step == 5
    torch._dynamo.reset()
    if "wandb" in block:
        pytest.importorskip("wandb").teardown()


def test_the_code_of_the_readme_is_that_of_the_first_example_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model_file, loop, _ = code_blocks("../README")
    loader = "loader = torch.utils.data.DataLoader(dataset, batch_size=8)\n"
    (tmp_path / "script.py").write_text(BEGINNING.replace("RECORDS", "40") + loader + loop + ENDING)

    assert runpy.run_path("script.py")["job"].step == 4 * 5
    assert model_file in (DOCS.parent / "examples" / "01-train-a-model" / "model.py").read_text()


# What each diff of `bring-your-own-code` takes for granted.
PORTS = {
    "pytorch": """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
dataset = TensorDataset(torch.randn(128, 6), torch.randint(0, 2, (128,)))
criterion = nn.CrossEntropyLoss()
def build():
    model = nn.Linear(6, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)
""",
    "ddp": """
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils import data
BATCH, EPOCHS = 8, 2
dataset = data.TensorDataset(torch.randn(32, 6), torch.randint(0, 2, (32,)))
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    "lightning": """
import lightning, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 2)
    def training_step(self, batch):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def validation_step(self, batch):
        self.log("loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
dataset = TensorDataset(torch.randn(32, 6), torch.randint(0, 2, (32,)))
module, train_dataloader, val_dataloader = Module(), DataLoader(dataset, 8, shuffle=True), DataLoader(dataset, 8)
""",
    "trainer": """
import torch, transformers
config = transformers.GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2)
model = transformers.GPT2LMHeadModel(config)
train = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 32, (16, 8))]
test = train[:4]
args = transformers.TrainingArguments("trained", num_train_epochs=1, report_to=[], disable_tqdm=True, use_cpu=True)
""",
    "accelerate": """
import torch
from torch import nn
from torch.utils.data import DataLoader
from types import SimpleNamespace
class Model(nn.Linear):
    def forward(self, inputs, labels):
        return SimpleNamespace(loss=nn.functional.cross_entropy(super().forward(inputs), labels))
EPOCHS = 2
model = Model(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
rows = [{"inputs": torch.randn(6), "labels": torch.tensor(number % 2)} for number in range(32)]
loader = DataLoader(rows, batch_size=4, drop_last=True)
""",
}
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def port_scripts() -> Sequence[object]:
    """Both sides of every diff; Lightning's `devices=4` is not for a test."""
    diffs = re.findall(r"```diff\n(.+?)```", (DOCS / "bring-your-own-code.md").read_text(), re.DOTALL)
    scripts = []
    for (name, beginning), diff in zip(PORTS.items(), diffs, strict=True):
        for side in "-+":
            if (name, side) == ("lightning", "-"):
                continue
            lines = [line[1:] for line in diff.splitlines() if line[:1] in ("", " ", side)]
            text = beginning + "\n".join(lines).replace("num_workers=4", "num_workers=0")
            marks = () if name in ("pytorch", "ddp") else pytest.mark.slow
            scripts.append(pytest.param(text, id=f"{name}-{'before' if side == '-' else 'after'}", marks=marks))
    return scripts


@pytest.mark.parametrize("text", port_scripts())
def test_the_code_before_and_after_a_port_trains(text: str, tmp_path: Path) -> None:
    for package in ("lightning", "transformers", "accelerate"):
        if package in text:
            pytest.importorskip(package)
    script = tmp_path / "script.py"
    script.write_text(text)
    environ = {**os.environ, "OMP_NUM_THREADS": "1"} | (ALONE if "init_process_group" in text else {})

    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def tracked(jobs: Jobs, name: str, block: str) -> Job:
    """A job of the page's code, of which the first worker was killed in the middle."""
    job = Job(jobs.home, name)
    job.slow.touch()
    text = script_of(block, records=480, slow=job.slow)
    script = jobs.home / f"{name}.py"
    script.write_text(text.replace("runs/", f"{jobs.home}/runs/").replace("mlflow.db", f"{jobs.home}/mlflow.db"))
    options = ["--detach", "--job_name", name, "--threads", "1", "--workers", "2:2"]
    # Weights & Biases writes to its file every 15 s, and nothing more once its worker is killed.
    settings = {"WANDB_MODE": "offline", "WANDB_DIR": str(jobs.home), "WANDB__TRANSACTION_LOG_FLUSH_INTERVAL": "0.02"}
    jobs.launch(job, ["run", *options, str(script)], MLFLOW_DISABLE_TELEMETRY="true", **settings)
    first = next(iter(job.wait_members(2, step=9).values()))
    os.kill(first, signal.SIGKILL)
    job.wait_event("worker-lost")
    job.hurry()
    result = job.result()
    assert result["phase"] == "succeeded", f"{result}\n{job.story()}"
    job.wait_gone()
    return job


@pytest.mark.slow
def test_a_job_is_one_run_of_tensorboard_although_its_first_worker_is_killed(jobs: Jobs) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tracked(jobs, "boarded", code_blocks("trackers")[0])

    (run,) = (jobs.home / "runs").iterdir()
    events = accumulator.EventAccumulator(str(run)).Reload()
    steps = {event.step for event in events.Scalars("loss")}

    assert run.name == "boarded" and len(list(run.iterdir())) >= 2
    assert len(steps) >= 59 and max(steps) == 59


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # of SQLAlchemy 2.1, about MLflow's own code
def test_a_job_is_one_run_of_mlflow_although_its_first_worker_is_killed(jobs: Jobs) -> None:
    mlflow = pytest.importorskip("mlflow")
    tracked(jobs, "flowed", code_blocks("trackers")[1])

    client = mlflow.MlflowClient(f"sqlite:///{jobs.home}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    steps = {metric.step for metric in client.get_metric_history(run.info.run_id, "loss")}

    assert run.info.status == "FINISHED" and run.data.tags["job"] == "flowed"
    assert len(steps) >= 59 and max(steps) == 59


@pytest.mark.slow
def test_a_job_is_one_run_of_weights_and_biases_although_its_first_worker_is_killed(jobs: Jobs) -> None:
    internal = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    tracked(jobs, "weighed", code_blocks("trackers")[2])

    runs, points = set(), []
    for path in sorted((jobs.home / "wandb").glob("offline-run-*/*.wandb")):
        records = [internal.Record.FromString(content) for content in logged(path.read_bytes())]
        runs |= {(record.run.project, record.run.run_id) for record in records if record.HasField("run")}
        points.append([record.history.step.num for record in records if record.HasField("history")])

    assert runs == {("digits", "weighed")}
    assert len(points) == 2 and all(steps == list(range(steps[0], steps[-1] + 1)) for steps in points), points
    before, after = points
    # The worker that is killed has trained at least to step 9; its last points may be lost, and none is there twice.
    assert before[0] == 0 and 7 <= before[-1] < after[0] <= before[-1] + 4 and after[-1] == 59, points


def logged(content: bytes) -> list[bytes]:
    """The records of a log in LevelDB's format, as Weights & Biases writes it; what is torn at the end is left out."""
    records, parts, offset = [], b"", 7  # behind the magic number
    while offset + 7 <= len(content):
        if (1 << 15) - offset % (1 << 15) < 7:
            offset += (1 << 15) - offset % (1 << 15)  # no room for a header at the end of the block
            continue
        size, kind = int.from_bytes(content[offset + 4 : offset + 6], "little"), content[offset + 6]
        part, offset = content[offset + 7 : offset + 7 + size], offset + 7 + size
        if not kind or len(part) < size:
            break
        parts = part if kind in (1, 2) else parts + part
        if kind in (1, 4):
            records.append(parts)
    return records
