"""A convolutional network for handwritten digits with Lightning: train.py [--plain] [--epochs N] [--steps N]

The data come with scikit-learn: 1,797 pictures of 8x8 pixels. `--plain` trains with Lightning alone.
"""

from __future__ import annotations

import argparse
import time

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--plain", action="store_true")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--steps", type=int, default=-1)
parser.add_argument("--output", default="trained")
options = parser.parse_args()


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * 16, 10),
        )  # fmt: skip

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        images, labels = batch
        logits = self.net(images)
        loss = nn.functional.cross_entropy(logits, labels)
        self.log("train_loss", loss)
        self.log("train_accuracy", (logits.argmax(1) == labels).float().mean(), on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        images, labels = batch
        self.log("accuracy", (self.net(images).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.002)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


lightning.seed_everything(7)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=64, shuffle=True)
validation = DataLoader(TensorDataset(images[1500:], labels[1500:]), batch_size=300)

if options.plain:
    strategy = "auto"
else:
    from elasticdl.lightning import ElasticStrategy

    strategy = ElasticStrategy(seed=7)  # type: ignore[assignment]

module = Digits()
best = ModelCheckpoint(options.output, monitor="accuracy", mode="max", filename="best")
trainer = lightning.Trainer(
    strategy=strategy, devices=1, max_epochs=options.epochs, max_steps=options.steps, callbacks=[best],
    gradient_clip_val=1.0, log_every_n_steps=10, enable_progress_bar=False, logger=False,
)  # fmt: skip
started_at = time.perf_counter()
trainer.fit(module, train, validation)
seconds = time.perf_counter() - started_at
if trainer.is_global_zero:
    accuracy = float(trainer.callback_metrics["accuracy"])
    print(f"{trainer.global_step} steps in {seconds:.1f} s, {trainer.global_step / seconds:.1f} steps/s")
    print(f"accuracy: {accuracy:.3f}, best model: {best.best_model_path}")
