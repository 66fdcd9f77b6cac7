"""A training with Hugging Face's Trainer, or a loop for Accelerate: huggingface_habits.py HABIT OUTPUT [--slow FILE]

Every worker writes what it ended with to OUTPUT-<worker>.safetensors.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, TrainingArguments, set_seed

from elasticdl.huggingface import ElasticAccelerator, ElasticTrainer

parser = argparse.ArgumentParser()
parser.add_argument("habit")
parser.add_argument("output")
parser.add_argument("--slow", default="/nowhere")
options = parser.parse_args()
habit, output, slow = options.habit, options.output, Path(options.slow)


def slow_down(module: nn.Module, arguments: Any) -> None:
    """Takes longer while a file exists, so that a test has the time to disturb the job."""
    if slow.exists() and module.training:
        time.sleep(0.2)


def examples(count: int, first: int = 0) -> list[dict[str, torch.Tensor]]:
    """Sentences of 8 numbers, each the one before plus a constant."""
    rows = [(torch.arange(8) * (number % 5 + 1) + number) % 32 for number in range(first, first + count)]
    return [{"input_ids": row, "labels": row.clone()} for row in rows]


torch.set_num_threads(1)
set_seed(3)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2))
model.register_forward_pre_hook(slow_down)
epochs, batch_size = 8, 6


def train_with_trainer() -> tuple[dict[str, torch.Tensor], str]:
    settings_by_habit: dict[str, dict[str, Any]] = {
        "early": {"eval_strategy": "epoch", "metric_for_best_model": "eval_loss", "greater_is_better": False},
        "bf16": {"bf16": True},
        "token-count": {"include_num_input_tokens_seen": True},
    }
    settings = settings_by_habit.get(habit, {"eval_strategy": "steps", "eval_steps": 8})
    trainer = ElasticTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=output, per_device_train_batch_size=batch_size, gradient_accumulation_steps=2,
            num_train_epochs=epochs, learning_rate=0.01, lr_scheduler_type="cosine", warmup_steps=5, max_grad_norm=0.5,
            seed=5, use_cpu=True, save_steps=20, logging_steps=5, report_to="none", disable_tqdm=True, **settings,
        ),
        train_dataset=examples(96),
        eval_dataset=examples(16, first=96),
        callbacks=[EarlyStoppingCallback(1, 10.0)] if habit == "early" else [],
        logical_ranks=4,
    )  # fmt: skip
    trainer.train()
    logged = [
        entry[key] for entry in trainer.state.log_history for key in ("epoch", "loss", "eval_loss") if key in entry
    ]
    assert trainer.lr_scheduler is not None
    return {
        "position": torch.tensor([trainer.state.global_step, trainer.job.step]),
        "logged": torch.tensor(logged, dtype=torch.float64),
        "rate": torch.tensor(trainer.lr_scheduler.get_last_lr(), dtype=torch.float64),
        "first": torch.tensor([int(trainer.is_world_process_zero())]),
    }, trainer.job.worker


def train_with_accelerate() -> tuple[dict[str, torch.Tensor], str]:
    accelerator = ElasticAccelerator(
        epochs=epochs, gradient_accumulation_steps=2, seed=5, logical_ranks=4, cpu=True,
        mixed_precision="bf16" if habit == "accelerate-bf16" else "no",
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))
    average = torch.optim.swa_utils.AveragedModel(nn.Linear(1, 1))
    accelerator.register_for_checkpointing(average)
    data: DataLoader[Any] = DataLoader(examples(96), batch_size=batch_size, shuffle=True)  # type: ignore[arg-type]
    prepared, stepper, loader, scheduler = accelerator.prepare(model, optimizer, data, schedule)
    losses = []
    for epoch in range(accelerator.first_epoch, epochs):
        prepared.train()
        for batch in loader:
            with accelerator.accumulate(prepared):
                loss = prepared(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(prepared.parameters(), 0.5)
                    average.update_parameters(nn.Linear(1, 1))
                stepper.step()
                scheduler.step()
                stepper.zero_grad()
        losses.append(accelerator.loss)
        if habit == "accelerate-leave" and epoch == 2:
            break
    accelerator.end_training()
    return {
        "position": torch.tensor([accelerator.job.step, int(average.n_averaged)]),
        "loss": torch.tensor([losses[-1]], dtype=torch.float64),
        "rate": torch.tensor(schedule.get_last_lr(), dtype=torch.float64),
        "first": torch.tensor([int(accelerator.is_main_process)]),
    }, accelerator.job.worker


tensors, worker = train_with_accelerate() if habit.startswith("accelerate") else train_with_trainer()
tensors |= {name: value.clone() for name, value in model.state_dict().items() if name != "lm_head.weight"}
save_file(tensors, f"{output}-{worker}.safetensors")
