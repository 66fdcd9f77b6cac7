"""A small GPT that learns to write Python, with Hugging Face's Trainer: train.py [--plain] [--epochs N] [--steps N]

The text is the source of Python's own library, the tokens are its bytes, and the model comes from a config: nothing is
downloaded. `--plain` trains with transformers alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--plain", action="store_true")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=-1)
parser.add_argument("--output", default="trained")
options = parser.parse_args()

LENGTH = 64
SOURCES = ("argparse", "heapq", "textwrap")


class Text(Dataset):
    """Pieces of a text, as bytes."""

    def __init__(self, text: bytes) -> None:
        count = len(text) // LENGTH
        self._pieces = torch.frombuffer(bytearray(text[: count * LENGTH]), dtype=torch.uint8).view(count, LENGTH)

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        piece = self._pieces[number].long()
        return {"input_ids": piece, "labels": piece}


set_seed(7)
library = Path(json.__file__).parents[1]
text = b"".join((library / f"{name}.py").read_bytes() for name in SOURCES)
train_bytes = len(text) * 9 // 10
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=128, n_layer=6, n_head=4, bos_token_id=0, eos_token_id=0
    )  # 1.2 million parameters
)
arguments = TrainingArguments(
    output_dir=options.output, num_train_epochs=options.epochs, max_steps=options.steps,
    per_device_train_batch_size=8, gradient_accumulation_steps=2, learning_rate=2e-3, lr_scheduler_type="cosine",
    warmup_steps=10, max_grad_norm=1.0, seed=7, logging_steps=20, eval_strategy="epoch", save_strategy="epoch",
    report_to="none", disable_tqdm=True,
)  # fmt: skip
if options.plain:
    trainer = Trainer(model, arguments, train_dataset=Text(text[:train_bytes]), eval_dataset=Text(text[train_bytes:]))
else:
    from elasticdl.huggingface import ElasticTrainer

    trainer = ElasticTrainer(
        model, arguments, train_dataset=Text(text[:train_bytes]), eval_dataset=Text(text[train_bytes:])
    )

result = trainer.train()
if trainer.is_world_process_zero():
    rate = result.global_step / result.metrics["train_runtime"]
    print(f"{result.global_step} steps in {result.metrics['train_runtime']:.1f} s, {rate:.1f} steps/s")
    beginning = torch.tensor([list(b"def ")])
    written = model.eval().generate(beginning, max_new_tokens=40, do_sample=False, pad_token_id=0)
    print(bytes(written[0].tolist()).decode(errors="replace"))
