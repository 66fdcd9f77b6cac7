"""Whether a script joins is read from its source; "never" is said only where it is certain."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from elasticdl.errors import SpecError
from elasticdl.model.script_source import (
    JoinStatus,
    ScriptSource,
    advise_port,
    check_joins,
    check_unmodified,
    list_changes,
    read_script,
)

# PyTorch's tutorial "Fault-tolerant distributed training with torchrun", shortened.
TORCHRUN = """
    import os
    import torch
    import torch.nn.functional as F
    from torch.utils.data import Dataset, DataLoader
    from torch.utils.data.distributed import DistributedSampler
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.distributed import init_process_group, destroy_process_group

    def ddp_setup():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        init_process_group(backend="nccl")

    class Trainer:
        def __init__(self, model, train_data, optimizer, save_every, snapshot_path):
            self.gpu_id = int(os.environ["LOCAL_RANK"])
            self.model = model.to(self.gpu_id)
            self.train_data = train_data
            self.optimizer = optimizer
            self.model = DDP(self.model, device_ids=[self.gpu_id])

        def _run_batch(self, source, targets):
            self.optimizer.zero_grad()
            output = self.model(source)
            loss = F.cross_entropy(output, targets)
            loss.backward()
            self.optimizer.step()

        def train(self, max_epochs):
            for epoch in range(max_epochs):
                self.train_data.sampler.set_epoch(epoch)

    def prepare_dataloader(dataset, batch_size):
        return DataLoader(dataset, batch_size=batch_size, pin_memory=True, sampler=DistributedSampler(dataset))

    if __name__ == "__main__":
        ddp_setup()
        destroy_process_group()
"""

# The shape of pytorch/examples imagenet/main.py.
IMAGENET = """
    import argparse
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    import torch.nn.parallel
    import torch.utils.data.distributed

    def main_worker(args):
        dist.init_process_group(backend=args.dist_backend, init_method=args.dist_url)
        model = torch.nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        train_sampler = torch.utils.data.distributed.DistributedSampler([])
        train_loader = torch.utils.data.DataLoader([], sampler=train_sampler)
        val_loader = torch.utils.data.DataLoader([])
        scheduler.step()
"""

JOINS = """
    import elasticdl.torch as elastic
    job = elastic.join(model, optimizer, dataset, global_batch_size=64)
"""


def may_call(module: str) -> bool:
    return module in ("elasticdl", "company")


def read(directory: Path, text: str, **modules: str) -> ScriptSource:
    for name, content in modules.items():
        (directory / f"{name}.py").write_text(dedent(content))
    script = directory / "train.py"
    script.write_text(dedent(text))
    return read_script(script, may_call)


@pytest.mark.parametrize("text", [TORCHRUN, IMAGENET, "import torch\nprint(torch.ones(1))"])
def test_a_script_without_elasticdl_never_joins(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).join_status is JoinStatus.NEVER


@pytest.mark.parametrize(
    "text",
    [
        JOINS,
        "from elasticdl.torch import join as take_part\ndef main():\n    take_part(1, 2, 3)",
        "from elasticdl import torch as elastic\nelastic.join(1)",
        "import elasticdl.torch\nelasticdl.torch.join(1)",
        "from functools import partial\nfrom elasticdl.torch import join\njoined = partial(join, seed=1)",
        "import lightning as L\nfrom elasticdl.lightning import ElasticStrategy\nL.Trainer(strategy=ElasticStrategy())",
        "import elasticdl.huggingface as hf\nhf.ElasticTrainer()",
    ],
)
def test_a_script_that_names_join_or_an_integration_joins(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).join_status is JoinStatus.JOINS


def test_modules_beside_the_script_are_also_read(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("from . import loop\n")
    (tmp_path / "lib" / "loop.py").write_text(dedent(JOINS))

    assert read(tmp_path, "from lib.other import x").join_status is JoinStatus.JOINS
    assert read(tmp_path, "import helper", helper="import torch").join_status is JoinStatus.NEVER


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module('somewhere').train()",
        "exec(open('more.py').read())",
        "from company.training import train\ntrain()",
        "from elasticdl.torch import *\nprint(1)",
        "import elasticdl.torch as elastic\nelastic.something_new(1)",
    ],
)
def test_unclear_sources_are_decided_by_the_worker(tmp_path: Path, text: str) -> None:
    script = read(tmp_path, text)

    assert script.join_status is JoinStatus.UNKNOWN
    check_joins(script)


def test_installed_modules_that_require_no_elasticdl_do_not_join(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch, numpy, json\nimport torch.distributed as dist\ndist.barrier()\n")

    assert read_script(tmp_path / "train.py").join_status is JoinStatus.NEVER


def test_modules_that_are_not_installed_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import nowhere_to_be_found\n")

    assert read_script(tmp_path / "train.py").join_status is JoinStatus.UNKNOWN


def test_a_ddp_script_is_refused_with_the_option_that_runs_it(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"train\.py:\d+\): run it unmodified with `elasticdl run --compat ddp train.py`"
    ):
        check_joins(read(tmp_path, TORCHRUN))


def test_a_trainer_of_lightning_counts_as_one_for_torchrun(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--compat ddp"):
        check_joins(read(tmp_path, "import lightning as L\nL.Trainer(max_epochs=3).fit(None)"))


def test_a_plain_script_is_refused_with_the_lines_to_add(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"elastic\.join\(model, optimizer, dataset") as refused:
        check_joins(read(tmp_path, "import torch\nprint(1)"))

    assert "--compat" not in str(refused.value)


def test_two_joins_at_the_top_level_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="in line 3 and again in line 4"):
        check_joins(read(tmp_path, JOINS.rstrip() + "\n    other = elastic.join(model, optimizer, dataset)\n"))


def test_a_script_that_joins_needs_no_compat(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="leave out --compat"):
        check_unmodified(read(tmp_path, JOINS))


def test_the_advice_names_the_lines_to_change(tmp_path: Path) -> None:
    changes = list_changes(read(tmp_path, TORCHRUN))

    codes = [change.code for change in changes]
    assert codes == [
        'init_process_group(backend="nccl")',
        "self.model = DDP(self.model, device_ids=[self.gpu_id])",
        "self.optimizer.zero_grad()",
        "loss.backward()",
        "self.optimizer.step()",
        "self.train_data.sampler.set_epoch(epoch)",
        "return DataLoader(dataset, batch_size=batch_size, pin_memory=True, sampler=DistributedSampler(dataset))",
        "destroy_process_group()",
    ]
    (backward,) = [change for change in changes if change.code == "loss.backward()"]
    assert backward.instead == "step.backward(loss)"


def test_the_advice_covers_a_model_inside_a_wrapper(tmp_path: Path) -> None:
    wrapped = "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(model)\n"
    (_, change) = list_changes(read(tmp_path, wrapped + "torch.save(model.module.state_dict(), 'model.pt')\n"))

    assert (change.line, change.instead) == (3, "without `.module`: join does not wrap the model")


def test_the_advice_covers_only_the_training_loader(tmp_path: Path) -> None:
    codes = [change.code for change in list_changes(read(tmp_path, IMAGENET))]

    assert "train_loader = torch.utils.data.DataLoader([], sampler=train_sampler)" in codes
    assert not [code for code in codes if "val_loader" in code or "scheduler" in code]


def test_a_script_without_such_lines_is_pointed_to_the_guide(tmp_path: Path) -> None:
    (advice,) = advise_port(read(tmp_path, "import torch"))

    assert "docs/bring-your-own-code.md" in advice
