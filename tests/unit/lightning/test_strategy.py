from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from elasticdl.errors import SpecError
from elasticdl.lightning import ElasticStrategy

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own


class Regression(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.outputs: list[float] = []

    def training_step(self, batch: Any) -> torch.Tensor:
        features, labels = batch
        loss = nn.functional.mse_loss(self.net(features), labels)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.outputs.append(float(outputs["loss"]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


def loader(records: int = 30) -> DataLoader[Any]:
    torch.manual_seed(2)
    return DataLoader(TensorDataset(torch.randn(records, 4), torch.randn(records, 1)), batch_size=8)


def fit(root: Path, module: Regression, **settings: Any) -> pl.Trainer:
    trainer = pl.Trainer(
        **{"max_epochs": 3, "devices": 1} | settings, accelerator="cpu", default_root_dir=root, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=0.1,
    )  # fmt: skip
    trainer.fit(module, loader())
    return trainer


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_one_logical_rank_trains_the_same_bits_as_lightning_alone(tmp_path: Path, precision: str) -> None:
    plain, elastic = Regression(), Regression()

    expected = fit(tmp_path, plain, precision=precision)
    trainer = fit(tmp_path, elastic, precision=precision, strategy=ElasticStrategy())

    assert elastic.outputs == plain.outputs
    for name, value in plain.state_dict().items():
        assert torch.equal(value, elastic.state_dict()[name]), name
    assert (trainer.global_step, trainer.current_epoch) == (expected.global_step, expected.current_epoch) == (12, 3)
    assert trainer.optimizers[0].param_groups[0]["lr"] == expected.optimizers[0].param_groups[0]["lr"]
    assert trainer.callback_metrics.keys() == expected.callback_metrics.keys()
    for name, metric in expected.callback_metrics.items():
        torch.testing.assert_close(trainer.callback_metrics[name], metric)


def test_a_batch_with_fewer_records_than_logical_ranks_is_trained(tmp_path: Path) -> None:
    module = Regression()

    trainer = fit(tmp_path, module, strategy=ElasticStrategy(global_batch_size=29, logical_ranks=4))

    assert trainer.global_step == 6


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"accumulate_grad_batches": 2}, "global_batch_size=2"),
        ({"max_epochs": -1}, "give max_epochs or max_steps"),
        ({"limit_train_batches": 2}, "Subset"),
        ({"overfit_batches": 2}, "Subset"),
        ({"reload_dataloaders_every_n_epochs": 1}, "leave it out"),
        ({"callbacks": [pl.callbacks.StochasticWeightAveraging(0.1)]}, "AveragedModel"),
        ({"devices": 2}, "devices=1"),
    ],
)
def test_settings_that_workers_cannot_keep_together_are_refused(
    tmp_path: Path, settings: dict[str, Any], fix: str
) -> None:
    with pytest.raises(SpecError, match=fix):
        fit(tmp_path, Regression(), strategy=ElasticStrategy(), **settings)


def test_manual_optimization_is_refused(tmp_path: Path) -> None:
    module = Regression()
    module.automatic_optimization = False

    with pytest.raises(SpecError, match=r"elasticdl\.torch\.join"):
        pl.Trainer(
            strategy=ElasticStrategy(), max_epochs=1, devices=1, accelerator="cpu", logger=False,
            enable_checkpointing=False, enable_progress_bar=False, default_root_dir=tmp_path,
        ).fit(module, loader())  # fmt: skip


def test_configure_optimizers_may_ask_for_the_length_of_the_training(tmp_path: Path) -> None:
    class Scheduled(Regression):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            self.length = self.trainer.estimated_stepping_batches
            return optimizer

    module = Scheduled()
    trainer = fit(tmp_path, module, strategy=ElasticStrategy(global_batch_size=10))

    assert module.length == trainer.global_step == 9


def test_a_second_fit_is_refused(tmp_path: Path) -> None:
    module, strategy = Regression(), ElasticStrategy()
    trainer = fit(tmp_path, module, strategy=strategy)

    with pytest.raises(SpecError, match="one training run"):
        trainer.fit(module, loader())
