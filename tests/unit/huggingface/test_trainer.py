from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from elasticdl.errors import SpecError
from elasticdl.huggingface import ElasticTrainer

pytestmark = pytest.mark.filterwarnings("ignore")


def build_model() -> GPT2LMHeadModel:
    torch.manual_seed(1)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


def examples(count: int) -> list[dict[str, torch.Tensor]]:
    rows = [(torch.arange(8) + number) % 16 for number in range(count)]
    return [{"input_ids": row, "labels": row.clone()} for row in rows]


def arguments(root: Path, **settings: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {
        "output_dir": str(root), "per_device_train_batch_size": 8, "num_train_epochs": 2, "learning_rate": 0.01,
        "max_grad_norm": 0.1, "use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no",
        "logging_steps": 1, "train_sampling_strategy": "sequential",
    }  # fmt: skip
    return TrainingArguments(**defaults | settings)


def test_one_logical_rank_trains_the_same_bits_as_the_trainer_alone(tmp_path: Path) -> None:
    plain = Trainer(build_model(), arguments(tmp_path), train_dataset=examples(30))
    elastic = ElasticTrainer(build_model(), arguments(tmp_path), train_dataset=examples(30))

    plain.train()
    elastic.train()

    assert plain.model is not None and elastic.model is not None
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, elastic.model.state_dict()[name]), name
    assert elastic.state.global_step == plain.state.global_step == 8
    for ours, theirs in zip(elastic.state.log_history[:-1], plain.state.log_history[:-1], strict=True):
        assert ours == pytest.approx(theirs)


def test_accumulated_batches_are_one_step_of_the_job(tmp_path: Path) -> None:
    trainer = ElasticTrainer(
        build_model(), arguments(tmp_path, gradient_accumulation_steps=2), train_dataset=examples(32), logical_ranks=2
    )

    trainer.train()

    assert trainer.job.plan.global_batch == 16 and trainer.state.global_step == 4


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"load_best_model_at_end": True, "save_strategy": "epoch", "eval_strategy": "epoch"}, "best_model_checkpoint"),
        ({"auto_find_batch_size": True}, "give the batch size"),
        ({"include_num_input_tokens_seen": True}, "leave it out"),
    ],
)
def test_arguments_that_workers_cannot_keep_together_are_refused(
    tmp_path: Path, settings: dict[str, Any], fix: str
) -> None:
    with pytest.raises(SpecError, match=fix):
        ElasticTrainer(build_model(), arguments(tmp_path, **settings), train_dataset=examples(8))


def test_a_checkpoint_of_the_trainer_is_refused(tmp_path: Path) -> None:
    trainer = ElasticTrainer(build_model(), arguments(tmp_path), train_dataset=examples(8))

    with pytest.raises(SpecError, match="--resume"):
        trainer.train(resume_from_checkpoint=True)
