"""Every option of the command line and the place in the JobSpec it sets, written down once.

The table is plain data; `elasticdl.cli` makes real options of it, the loader names
them in its messages. Option names are the original ElasticDL's where it had one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.spec.cluster_options import CLUSTER_OPTIONS
from elasticdl.spec.data_options import DATA_OPTIONS
from elasticdl.spec.option import ALL, MODEL_COMMANDS, PREDICT, RUN, TRAIN, Form, Option

__all__ = ["ALL", "OPTIONS", "Form", "Option", "at", "document", "named", "of"]

_JOB, _MODEL, _PLAN = "Job", "Model", "Plan (fixes the bits of the result)"
_PS = "Parameter servers"
_WORKERS, _CHECKPOINTS, _EVALUATION, _SYSTEM = "Workers", "Checkpoints and output", "Evaluation", "System"

OPTIONS: tuple[Option, ...] = (
    Option("job_name", "name", _JOB, "Name of the job, unique on this machine. Default: a readable new one.", ALL),
    Option("log_level", "log_level", _JOB, "DEBUG, INFO, WARNING or ERROR.", ALL, metavar="LEVEL"),
    Option(
        "compat",
        "script.compat",
        _JOB,
        "ddp: run an unmodified torchrun script; it is restarted whenever the workers change.",
        (RUN,),
        metavar="KIND",
    ),
    Option("model_zoo", "model.zoo", _MODEL, "Directory the model file is found in.", MODEL_COMMANDS, metavar="DIR"),
    Option(
        "model_def",
        "model.definition",
        _MODEL,
        "Which function builds the model: mnist.mnist.forward is forward in <model_zoo>/mnist/mnist.py.",
        MODEL_COMMANDS,
        metavar="NAME",
    ),
    Option(
        "model_params",
        "model.params",
        _MODEL,
        "Keyword arguments for the model and the optimizer, values as YAML. May be repeated.",
        MODEL_COMMANDS,
        Form.MAPPING,
        '"a=1;b=[1,2]"',
    ),
    *DATA_OPTIONS,
    Option("num_epochs", "plan.epochs", _PLAN, "How often all records are trained.", (TRAIN,), metavar="N"),
    Option("minibatch_size", "plan.minibatch_size", _PLAN, "Records per worker and step.", MODEL_COMMANDS, metavar="N"),
    Option(
        "global_batch_size",
        "plan.global_batch_size",
        _PLAN,
        "Records per step of all workers together. Default: minibatch_size x num_workers.",
        (TRAIN,),
        metavar="N",
    ),
    Option(
        "logical_ranks",
        "plan.logical_ranks",
        _PLAN,
        "Fixed shares of the global batch. Default: max_workers.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option("seed", "plan.seed", _PLAN, "Origin of all random numbers.", (TRAIN,), metavar="N"),
    Option("max_steps", "plan.max_steps", _PLAN, "Stop after so many steps.", (TRAIN,), metavar="N", alias="max_step"),
    Option(
        "learning_rate", "plan.learning_rate", _PLAN, "Passed to optimizer(parameters, lr=…).", (TRAIN,), metavar="X"
    ),
    Option(
        "reproducible",
        "plan.reproducible",
        _PLAN,
        "The same bits for any number of workers (default), or plain all-reduce.",
        (TRAIN, RUN),
        Form.SWITCH,
    ),
    Option(
        "adaptive_batch",
        "plan.batch_rule",
        _PLAN,
        "Let the batch be scaled while the job runs, the learning rate by adascale, sqrt or linear. Default: none.",
        (TRAIN, RUN),
        metavar="RULE",
    ),
    Option(
        "batch_schedule",
        "plan.batch_schedule",
        _PLAN,
        "With --adaptive_batch: from step S on, K global batches make one update.",
        (TRAIN, RUN),
        Form.PAIRS,
        "S=K,S=K",
    ),
    Option(
        "max_batch_size",
        "plan.max_batch_size",
        _PLAN,
        "With --adaptive_batch: records of one update at most. Default: 32 global batches.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option(
        "precision",
        "plan.precision",
        _PLAN,
        "What the loss is computed in: fp32 (default), bf16 or fp16, under torch.autocast.",
        (TRAIN,),
        metavar="TYPE",
    ),
    Option(
        "micro_batch_size",
        "plan.micro_batch_size",
        _PLAN,
        "Records of one backward pass at most; several make one update. Default: all of a logical rank at once.",
        (TRAIN,),
        metavar="N",
    ),
    Option(
        "guard_steps",
        "plan.guard_steps",
        _SYSTEM,
        "Workers compare weights, optimizer and script state every N steps; a difference ends the job. 0: never.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option("shuffle", "plan.shuffle", _PLAN, "Shuffle the records each epoch (default).", (TRAIN,), Form.SWITCH),
    Option("drop_last", "plan.drop_last", _PLAN, "Leave out a short last batch.", (TRAIN,), Form.SWITCH),
    Option("num_workers", "workers.wish", _WORKERS, "How many workers are wished for.", MODEL_COMMANDS, metavar="N"),
    Option("min_workers", "workers.min", _WORKERS, "The job waits for at least these.", MODEL_COMMANDS, metavar="N"),
    Option("max_workers", "workers.max", _WORKERS, "Never more than these.", MODEL_COMMANDS, metavar="N"),
    Option("threads", "workers.threads", _WORKERS, "CPU threads of each worker.", ALL, metavar="N"),
    Option(
        "cpu_capability",
        "workers.cpu_capability",
        _WORKERS,
        "Instruction set to compute with (default, avx2, avx512), where machines differ: it is part of the bits.",
        ALL,
        metavar="NAME",
    ),
    Option("device", "workers.device", _WORKERS, "cpu, cuda or auto.", ALL, metavar="DEVICE"),
    Option(
        "failure_budget",
        "workers.failure_budget",
        _WORKERS,
        "Crashes of workers before the job fails; preemptions count only without progress in between.",
        ALL,
        metavar="N",
    ),
    Option("address", "workers.address", _WORKERS, "Address master and workers bind to.", ALL, metavar="ADDRESS"),
    Option("num_ps_pods", "ps.wish", _PS, "How many ps are wished for.", (TRAIN,), metavar="N", alias="num_ps"),
    Option(
        "ps_mode",
        "ps.mode",
        _PS,
        "hybrid (default: embeddings on ps, dense layers by all-reduce), async, sync or local.",
        (TRAIN,),
        metavar="MODE",
    ),
    Option("ps_replicas", "ps.replicas", _PS, "Holders of each row: 1 or 2.", (TRAIN,), metavar="N"),
    Option("ps_memory", "ps.memory_limit", _PS, "Memory limit of each ps.", (TRAIN,), metavar="4Gi"),
    Option("ps_threads", "ps.threads", _PS, "Threads of each ps.", (TRAIN,), metavar="N"),
    Option(
        "max_staleness",
        "ps.max_staleness",
        _PS,
        "Refuse a push whose values are older than N updates; it is computed again. 0: never.",
        (TRAIN,),
        metavar="N",
        alias="sync_version_tolerance",
    ),
    Option(
        "lr_staleness_modulation",
        "ps.modulate_rate",
        _PS,
        "Divide the learning rate of a push by its staleness.",
        (TRAIN,),
        Form.SWITCH,
    ),
    Option("grads_to_wait", "ps.grads_to_wait", _PS, "sync: pushes that make one update.", (TRAIN,), metavar="N"),
    Option(
        "pull_every",
        "ps.pull_every",
        _PS,
        "local: steps between two pulls of the dense variables.",
        (TRAIN,),
        metavar="K",
        alias="get_model_steps",
    ),
    Option(
        "pipeline_depth",
        "ps.depth",
        _PS,
        "Batches whose rows travel while another computes.",
        (TRAIN,),
        metavar="N",
    ),
    Option("transport", "ps.transport", _PS, "float32, float16 or bfloat16 on the wire.", (TRAIN,), metavar="TYPE"),
    Option(
        "embedding_on_ps",
        "ps.embeddings",
        _PS,
        "Plain embedding layers that move to the ps: auto (large ones), all or none.",
        (TRAIN,),
        metavar="WHICH",
    ),
    Option(
        "embedding_bytes",
        "ps.embedding_bytes",
        _PS,
        "auto: large is this many bytes. Default: 2 MiB.",
        (TRAIN,),
        metavar="N",
    ),
    Option(
        "checkpoint_steps", "checkpoint.steps", _CHECKPOINTS, "Checkpoint every N steps.", (TRAIN, RUN), metavar="N"
    ),
    Option(
        "checkpoint_dir",
        "checkpoint.directory",
        _CHECKPOINTS,
        "Where checkpoints lie. Default: in the job directory.",
        (TRAIN, RUN),
        metavar="DIR",
    ),
    Option(
        "checkpoint_retry_s",
        "checkpoint.retry_s",
        _CHECKPOINTS,
        "For how long the last checkpoint is tried again where it cannot be written, on a full disk for example.",
        (TRAIN, RUN),
        metavar="SECONDS",
    ),
    Option("keep_checkpoint_max", "checkpoint.keep", _CHECKPOINTS, "Keep the newest N.", (TRAIN, RUN), metavar="N"),
    Option(
        "checkpoint_dir_for_init",
        "checkpoint.initial",
        _CHECKPOINTS,
        "A checkpoint, or a directory of them, to start from.",
        ALL,
        metavar="DIR",
    ),
    Option(
        "resume",
        "checkpoint.resume",
        _CHECKPOINTS,
        "Go on with the job of this name from its newest checkpoint.",
        (TRAIN, RUN),
        Form.SWITCH,
    ),
    Option("output", "output", _CHECKPOINTS, "Where the result is written.", (TRAIN, PREDICT), metavar="DIR"),
    Option("evaluation_steps", "evaluation.steps", _EVALUATION, "Evaluate every N steps.", (TRAIN,), metavar="N"),
    Option("evaluation_epochs", "evaluation.epochs", _EVALUATION, "Evaluate every N epochs.", (TRAIN,), metavar="N"),
    Option(
        "evaluation_wait",
        "evaluation.wait",
        _EVALUATION,
        "Go on when an evaluation's result is there, so that callbacks act at the same step in every run.",
        (TRAIN,),
        Form.SWITCH,
    ),
    Option(
        "log_steps",
        "observability.log_steps",
        _SYSTEM,
        "Keep the loss of every N-th step. Default: of every step, or of as few as make 5,000 points.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option(
        "timing", "timing", _SYSTEM, "A timeout, e.g. silence_s=2. May be repeated.", ALL, Form.MAPPING, "KEY=VALUE"
    ),
    Option(
        "stall_timeout",
        "timing.stall_s",
        _SYSTEM,
        "Replace a worker that stands still for so many seconds, and for 20 usual steps. 0: never.",
        ALL,
        metavar="SECONDS",
    ),
    Option(
        "metrics_port", "metrics_port", _SYSTEM, "Port of the Prometheus metrics. Default: any free.", ALL, metavar="N"
    ),
    Option("tls", "security.tls", _SYSTEM, "Mutual TLS, with certificates made for this job.", ALL, Form.SWITCH),
    Option(
        "tls_lifetime_s",
        "security.lifetime_s",
        _SYSTEM,
        "How long each of its certificates is valid. Default: a day. Replaced when half of that has passed.",
        ALL,
        metavar="SECONDS",
    ),
    Option("tls_cert", "security.certificate", _SYSTEM, "Or your own, for all replicas.", ALL, metavar="FILE"),
    Option("tls_key", "security.key", _SYSTEM, "Its private key.", ALL, metavar="FILE"),
    Option("tls_ca", "security.authority", _SYSTEM, "The authority that signed it.", ALL, metavar="FILE"),
    Option(
        "insecure",
        "security.insecure",
        _SYSTEM,
        "With --address: let other machines reach the job without TLS.",
        ALL,
        Form.SWITCH,
    ),
    Option(
        "plain_nccl",
        "security.plain_nccl",
        _SYSTEM,
        "With TLS: let NCCL carry gradients between machines, unencrypted. Default: encrypted, through the host.",
        (TRAIN, RUN),
        Form.SWITCH,
    ),
    *CLUSTER_OPTIONS,
)


def of(command: str) -> tuple[Option, ...]:
    """The options of one command, in the order of its help."""
    return tuple(option for option in OPTIONS if command in option.commands)


def at(path: str) -> Option | None:
    """The option that sets `path` of the JobSpec, if there is one."""
    return next((option for option in OPTIONS if option.path == path), None)


def named(name: str) -> Option | None:
    """The option called `name`, in either spelling."""
    plain = name.replace("-", "_")
    return next((option for option in OPTIONS if plain in (option.name, option.alias)), None)


def document(values: Mapping[str, Any]) -> dict[str, Any]:
    """The nested document that the given options, by name, describe; None means not given."""
    root: dict[str, Any] = {}
    for option in OPTIONS:
        value = values.get(option.name)
        if value is None:
            continue
        *parents, leaf = option.path.split(".")
        place = root
        for parent in parents:
            place = place.setdefault(parent, {})
        place[leaf] = dict(value) if isinstance(value, Mapping) else value  # another option may add to it
    return root
