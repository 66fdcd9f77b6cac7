"""A training with Lightning: lightning_habits.py HABIT OUTPUT [--slow FILE]

Every worker writes what it ended with to OUTPUT-<worker>.safetensors.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from elasticdl.lightning import ElasticStrategy

warnings.filterwarnings("ignore", module="lightning")
parser = argparse.ArgumentParser()
parser.add_argument("habit")
parser.add_argument("output")
parser.add_argument("--slow", default="/nowhere")
options = parser.parse_args()
habit, slow = options.habit, Path(options.slow)


class Classifier(pl.LightningModule):
    """BatchNorm and dropout included."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
        self.epochs: list[int] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        features, labels = batch
        if slow.exists():
            time.sleep(0.2)
        logits = self.net(features)
        loss = nn.functional.cross_entropy(logits, labels)
        self.log("train_loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        self.log("train_accuracy", (logits.argmax(1) == labels).float().mean(), on_epoch=True, on_step=False)
        return loss

    def on_train_epoch_start(self) -> None:
        self.epochs.append(self.current_epoch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        features, labels = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(features), labels))

    def configure_optimizers(self) -> Any:
        if habit == "plateau":
            optimizer: torch.optim.Optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
            scheduler: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.2)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "train_accuracy"}}
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=64)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


torch.set_num_threads(1)
pl.seed_everything(3, verbose=False)
features = torch.randn(128, 6)
labels = (features.sum(1) > 0).long()
train = DataLoader(TensorDataset(features[:96], labels[:96]), batch_size=12, shuffle=True)
validation = DataLoader(TensorDataset(features[96:], labels[96:]), batch_size=16)
module = Classifier()
settings: dict[str, Any] = {"max_epochs": 8}
callbacks: list[Any] = [
    ModelCheckpoint(f"{options.output}-checkpoints", monitor="train_loss", save_top_k=2, filename="{epoch}-{step}")
]
if habit == "early":
    callbacks.append(EarlyStopping("val_loss", patience=0, min_delta=10.0))
elif habit == "steps":
    settings = {"max_steps": 44, "max_epochs": -1}
elif habit == "bf16":
    settings["precision"] = "bf16-mixed"
elif habit == "fp16":
    settings["precision"] = "16-mixed"
elif habit == "accumulate":
    settings["accumulate_grad_batches"] = 2
strategy = ElasticStrategy(seed=5, logical_ranks=4)
trainer = pl.Trainer(
    strategy=strategy, accelerator="cpu", devices=1, callbacks=callbacks, gradient_clip_val=0.5,
    logger=CSVLogger(options.output, version="run"), log_every_n_steps=1, enable_progress_bar=False,
    enable_model_summary=False, **settings,
)  # fmt: skip
trainer.fit(module, train, validation)
tensors = {name: value.clone() for name, value in module.state_dict().items()}
tensors["position"] = torch.tensor([trainer.global_step, trainer.current_epoch, strategy.job.step])
tensors["rate"] = torch.tensor([group["lr"] for group in trainer.optimizers[0].param_groups], dtype=torch.float64)
tensors["metrics"] = torch.stack(
    [trainer.callback_metrics[name] for name in ("train_loss", "train_accuracy", "val_loss")]
)
tensors["best"] = torch.tensor([float(callbacks[0].best_model_score)])
tensors["first"] = torch.tensor([int(trainer.is_global_zero)])
save_file(tensors, f"{options.output}-{strategy.job.worker}.safetensors")
print("epochs", module.epochs)
