"""Every option of the command line and the field of the JobSpec it sets, as one table.

The table is plain data: `elasticdl.cli` makes click options of it, and `spec.load` names them in its messages. Options
have the names of the original ElasticDL where it had one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

TRAIN, EVALUATE, PREDICT, RUN = "train", "evaluate", "predict", "run"
MODEL_COMMANDS = (TRAIN, EVALUATE, PREDICT)
ALL_COMMANDS = (TRAIN, EVALUATE, PREDICT, RUN)


class OptionSyntax(Enum):
    """How the words after an option are read."""

    WORD = auto()  # one value; the JobSpec says whether it is a number
    OPTIONAL = auto()  # one value, or none: --queue, --queue=NAME
    SWITCH = auto()  # --shuffle / --no-shuffle
    LIST = auto()  # a,b,c
    MAPPING = auto()  # a=1;b=[1,2], repeated, or a YAML mapping
    PAIRS = auto()  # a=1,b=2: words
    VOLUMES = auto()  # claim_name=c,mount_path=/data;host_path=/h,mount_path=/m
    FILE = auto()  # a YAML file whose document is meant


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    path: str  # dotted, in the JobSpec
    section: str  # heading in --help
    help: str
    commands: tuple[str, ...] = ALL_COMMANDS
    syntax: OptionSyntax = OptionSyntax.WORD
    metavar: str = "TEXT"
    alias: str = ""

    @property
    def flag(self) -> str:
        return f"--{self.name}"


_DATA = "Data"

_DATA_OPTIONS: tuple[Option, ...] = (
    Option(
        "training_data",
        "data.training",
        _DATA,
        "File, directory, glob or table to train on.",
        (TRAIN,),
        metavar="PATH",
    ),
    Option("validation_data", "data.validation", _DATA, "Records to evaluate on.", (TRAIN, EVALUATE), metavar="PATH"),
    Option("prediction_data", "data.prediction", _DATA, "Records to predict.", (PREDICT,), metavar="PATH"),
    Option(
        "bad_rows",
        "prediction.bad_rows",
        _DATA,
        "Rows that cannot be read: error (default) ends the job, skip leaves them out, mark writes why.",
        (PREDICT,),
        metavar="WHAT",
    ),
    Option(
        "id_column",
        "prediction.id_column",
        _DATA,
        "Column of the data to write beside each prediction.",
        (PREDICT,),
        metavar="NAME",
    ),
    Option(
        "data_format",
        "data.format",
        _DATA,
        "auto, csv, jsonl, parquet, tfrecord, images or python. Default: by the file's name.",
        MODEL_COMMANDS,
        metavar="FORMAT",
    ),
    Option(
        "columns",
        "data.columns",
        _DATA,
        "Names for a CSV without a header line, or the columns to read.",
        MODEL_COMMANDS,
        OptionSyntax.LIST,
        "A,B,…",
    ),
    Option(
        "delimiter",
        "data.delimiter",
        _DATA,
        "Between the fields of a CSV file, or tab. Default: by the file's name.",
        MODEL_COMMANDS,
        metavar="C",
    ),
    Option(
        "unpack_limit",
        "data.unpack_limit",
        _DATA,
        "The most one compressed file may become on disk.",
        MODEL_COMMANDS,
        metavar="SIZE",
    ),
    Option(
        "data_retry_s",
        "data.retry_s",
        _DATA,
        "For how long a file, a database or an object store that went away is waited for.",
        MODEL_COMMANDS,
        metavar="SECONDS",
    ),
    Option(
        "bad_records",
        "data.bad_records",
        _DATA,
        "Skip and name up to N records that cannot be read, or for which a function fails. Default: 0.",
        (TRAIN, EVALUATE, RUN),
        metavar="N",
    ),
    Option(
        "shard_records",
        "data.shard_records",
        _DATA,
        "Records in a shard, the unit that is shuffled and leased.",
        MODEL_COMMANDS,
        metavar="N",
    ),
    Option(
        "data_reader_params",
        "data.reader_params",
        _DATA,
        "Keyword arguments for custom_data_reader, as in --model_params.",
        MODEL_COMMANDS,
        OptionSyntax.MAPPING,
        '"a=1;b=2"',
    ),
)


_KUBERNETES = "Kubernetes"

_CLUSTER_OPTIONS: tuple[Option, ...] = (
    Option(
        "image_name",
        "cluster.image",
        _KUBERNETES,
        "Image of all pods; with it the job runs on Kubernetes.",
        ALL_COMMANDS,
    ),
    Option("namespace", "cluster.namespace", _KUBERNETES, "Namespace. Default: that of the context.", ALL_COMMANDS),
    *(
        Option(
            f"{role}_resource_{kind}",
            f"cluster.{role}.{kind}s",
            _KUBERNETES,
            f"What each {role} pod {verb}.",
            ALL_COMMANDS,
            OptionSyntax.PAIRS,
            '"cpu=1,memory=4Gi"',
        )
        for role in ("master", "worker", "ps")
        for kind, verb in (("request", "asks for"), ("limit", "gets at most"))
    ),
    Option(
        "master_pod_priority", "cluster.master.priority", _KUBERNETES, "high, low or a PriorityClass.", ALL_COMMANDS
    ),
    Option(
        "worker_pod_priority",
        "cluster.worker.priority",
        _KUBERNETES,
        "high, low, a PriorityClass, or the share of workers that is high, e.g. 0.5.",
        ALL_COMMANDS,
    ),
    Option("ps_pod_priority", "cluster.ps.priority", _KUBERNETES, "high, low or a PriorityClass.", (TRAIN,)),
    Option(
        "volume",
        "cluster.volumes",
        _KUBERNETES,
        "Mounted into all pods: claims, or directories of the nodes.",
        ALL_COMMANDS,
        OptionSyntax.VOLUMES,
        '"claim_name=c,mount_path=/data"',
    ),
    Option("envs", "cluster.env", _KUBERNETES, "Variables of all pods.", ALL_COMMANDS, OptionSyntax.PAIRS, '"A=1,B=2"'),
    Option(
        "env_secrets",
        "cluster.env_from_secrets",
        _KUBERNETES,
        "Secrets whose keys become variables.",
        ALL_COMMANDS,
        OptionSyntax.LIST,
        "A,B",
    ),
    Option(
        "image_pull_policy",
        "cluster.image_pull_policy",
        _KUBERNETES,
        "Always, IfNotPresent (default) or Never.",
        ALL_COMMANDS,
    ),
    Option(
        "image_pull_secrets",
        "cluster.image_pull_secrets",
        _KUBERNETES,
        "For a private registry.",
        ALL_COMMANDS,
        OptionSyntax.LIST,
        "A,B",
    ),
    Option(
        "service_account",
        "cluster.service_account",
        _KUBERNETES,
        "Of the master. Default: one of its own.",
        ALL_COMMANDS,
    ),
    Option(
        "node_selector",
        "cluster.node_selector",
        _KUBERNETES,
        "Labels of nodes.",
        ALL_COMMANDS,
        OptionSyntax.PAIRS,
        '"A=1,B=2"',
    ),
    Option("spread", "cluster.spread", _KUBERNETES, "Spread pods over nodes (default), zones, or none.", ALL_COMMANDS),
    Option("scheduler_name", "cluster.scheduler", _KUBERNETES, "Scheduler of the pods.", ALL_COMMANDS),
    Option(
        "queue",
        "cluster.queue",
        "Job",
        "Queue of Kueue. On this machine: wait for `elasticdl scheduler` to give the job workers.",
        ALL_COMMANDS,
        OptionSyntax.OPTIONAL,
        "[NAME]",
    ),
    Option("journal_claim", "cluster.journal_claim", _KUBERNETES, "Claim for the master's journal.", ALL_COMMANDS),
    Option(
        "max_memory",
        "cluster.max_memory",
        _KUBERNETES,
        "Most memory of a pod that ran out of it.",
        ALL_COMMANDS,
        metavar="16Gi",
    ),
    Option(
        "cluster_spec",
        "cluster.overrides",
        _KUBERNETES,
        "YAML merged into pods and services: pod, master_pod, worker_pod, ps_pod, service.",
        ALL_COMMANDS,
        OptionSyntax.FILE,
        "FILE",
    ),
)


__all__ = [
    "ALL_COMMANDS",
    "OPTIONS",
    "Option",
    "OptionSyntax",
    "find_option",
    "find_option_for",
    "options_document",
    "options_of",
]

_JOB, _MODEL, _PLAN = "Job", "Model", "Plan (fixes the bits of the result)"
_PS = "Parameter servers"
_WORKERS, _CHECKPOINTS, _EVALUATION, _SYSTEM = "Workers", "Checkpoints and output", "Evaluation", "System"

OPTIONS: tuple[Option, ...] = (
    Option(
        "job_name", "name", _JOB, "Name of the job, unique on this machine. Default: a readable new one.", ALL_COMMANDS
    ),
    Option("log_level", "log_level", _JOB, "DEBUG, INFO, WARNING or ERROR.", ALL_COMMANDS, metavar="LEVEL"),
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
        OptionSyntax.MAPPING,
        '"a=1;b=[1,2]"',
    ),
    *_DATA_OPTIONS,
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
        OptionSyntax.SWITCH,
    ),
    Option(
        "adaptive_batch",
        "plan.lr_scaling",
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
        OptionSyntax.PAIRS,
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
    Option(
        "shuffle", "plan.shuffle", _PLAN, "Shuffle the records each epoch (default).", (TRAIN,), OptionSyntax.SWITCH
    ),
    Option("drop_last", "plan.drop_last", _PLAN, "Leave out a short last batch.", (TRAIN,), OptionSyntax.SWITCH),
    Option("num_workers", "workers.replicas", _WORKERS, "How many workers.", MODEL_COMMANDS, metavar="N"),
    Option("min_workers", "workers.min", _WORKERS, "The job waits for at least these.", MODEL_COMMANDS, metavar="N"),
    Option("max_workers", "workers.max", _WORKERS, "Never more than these.", MODEL_COMMANDS, metavar="N"),
    Option("threads", "workers.threads", _WORKERS, "CPU threads of each worker.", ALL_COMMANDS, metavar="N"),
    Option(
        "cpu_capability",
        "workers.cpu_capability",
        _WORKERS,
        "Instruction set to compute with (default, avx2, avx512), where machines differ: it is part of the bits.",
        ALL_COMMANDS,
        metavar="NAME",
    ),
    Option(
        "start_method",
        "workers.start_method",
        _WORKERS,
        "fork (default): workers of a local job start from a process that has imported torch; spawn: each imports it.",
        ALL_COMMANDS,
        metavar="METHOD",
    ),
    Option("device", "workers.device", _WORKERS, "cpu, cuda or auto.", ALL_COMMANDS, metavar="DEVICE"),
    Option(
        "failure_budget",
        "workers.failure_budget",
        _WORKERS,
        "Crashes of workers before the job fails; preemptions count only without progress in between.",
        ALL_COMMANDS,
        metavar="N",
    ),
    Option(
        "address", "workers.address", _WORKERS, "Address master and workers bind to.", ALL_COMMANDS, metavar="ADDRESS"
    ),
    Option("num_ps_pods", "ps.replicas", _PS, "How many ps.", (TRAIN,), metavar="N", alias="num_ps"),
    Option(
        "ps_mode",
        "ps.mode",
        _PS,
        "hybrid (default: embeddings on ps, dense layers by all-reduce), async, sync or local.",
        (TRAIN,),
        metavar="MODE",
    ),
    Option("ps_backups", "ps.backups", _PS, "Backups of each row on another ps: 0 or 1.", (TRAIN,), metavar="N"),
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
        "ps.scale_lr_by_staleness",
        _PS,
        "Divide the learning rate of a push by its staleness.",
        (TRAIN,),
        OptionSyntax.SWITCH,
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
        "ps.pipeline_depth",
        _PS,
        "Batches whose rows travel while another computes.",
        (TRAIN,),
        metavar="N",
    ),
    Option("wire_dtype", "ps.wire_dtype", _PS, "float32, float16 or bfloat16 on the wire.", (TRAIN,), metavar="TYPE"),
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
        "checkpoint_steps",
        "checkpoint.every_steps",
        _CHECKPOINTS,
        "Checkpoint every N steps.",
        (TRAIN, RUN),
        metavar="N",
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
    Option(
        "keep_checkpoint_max", "checkpoint.keep_last", _CHECKPOINTS, "Keep the newest N.", (TRAIN, RUN), metavar="N"
    ),
    Option(
        "checkpoint_dir_for_init",
        "checkpoint.init_from",
        _CHECKPOINTS,
        "A checkpoint, or a directory of them, to start from.",
        ALL_COMMANDS,
        metavar="DIR",
    ),
    Option(
        "resume",
        "checkpoint.resume",
        _CHECKPOINTS,
        "Go on with the job of this name from its newest checkpoint.",
        (TRAIN, RUN),
        OptionSyntax.SWITCH,
    ),
    Option("output", "output", _CHECKPOINTS, "Where the result is written.", (TRAIN, PREDICT), metavar="DIR"),
    Option("evaluation_steps", "evaluation.every_steps", _EVALUATION, "Evaluate every N steps.", (TRAIN,), metavar="N"),
    Option(
        "evaluation_epochs", "evaluation.every_epochs", _EVALUATION, "Evaluate every N epochs.", (TRAIN,), metavar="N"
    ),
    Option(
        "evaluation_wait",
        "evaluation.wait",
        _EVALUATION,
        "Go on when an evaluation's result is there, so that callbacks act at the same step in every run.",
        (TRAIN,),
        OptionSyntax.SWITCH,
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
        "timing",
        "timing",
        _SYSTEM,
        "A timeout, e.g. heartbeat_timeout_s=2. May be repeated.",
        ALL_COMMANDS,
        OptionSyntax.MAPPING,
        "KEY=VALUE",
    ),
    Option(
        "stall_timeout",
        "timing.stall_timeout_s",
        _SYSTEM,
        "Replace a worker that stands still for so many seconds, and for 20 usual steps. 0: never.",
        ALL_COMMANDS,
        metavar="SECONDS",
    ),
    Option(
        "metrics_port",
        "metrics_port",
        _SYSTEM,
        "Port of the Prometheus metrics. Default: any free.",
        ALL_COMMANDS,
        metavar="N",
    ),
    Option(
        "tls",
        "security.tls",
        _SYSTEM,
        "Mutual TLS, with certificates made for this job.",
        ALL_COMMANDS,
        OptionSyntax.SWITCH,
    ),
    Option(
        "tls_lifetime_s",
        "security.certificate_lifetime_s",
        _SYSTEM,
        "How long each of its certificates is valid. Default: a day. Replaced when half of that has passed.",
        ALL_COMMANDS,
        metavar="SECONDS",
    ),
    Option("tls_cert", "security.certificate", _SYSTEM, "Or your own, for all replicas.", ALL_COMMANDS, metavar="FILE"),
    Option("tls_key", "security.key", _SYSTEM, "Its private key.", ALL_COMMANDS, metavar="FILE"),
    Option("tls_ca", "security.ca", _SYSTEM, "The authority that signed it.", ALL_COMMANDS, metavar="FILE"),
    Option(
        "insecure",
        "security.insecure",
        _SYSTEM,
        "With --address: let other machines reach the job without TLS.",
        ALL_COMMANDS,
        OptionSyntax.SWITCH,
    ),
    Option(
        "plain_nccl",
        "security.plain_nccl",
        _SYSTEM,
        "With TLS: let NCCL carry gradients between machines, unencrypted. Default: encrypted, through the host.",
        (TRAIN, RUN),
        OptionSyntax.SWITCH,
    ),
    *_CLUSTER_OPTIONS,
)


def options_of(command: str) -> tuple[Option, ...]:
    """The options of one command, in the order of its help."""
    return tuple(option for option in OPTIONS if command in option.commands)


def find_option_for(path: str) -> Option | None:
    """The option that sets `path` of the JobSpec, if there is one."""
    return next((option for option in OPTIONS if option.path == path), None)


def find_option(name: str) -> Option | None:
    """The option called `name`, in either spelling."""
    plain = name.replace("-", "_")
    return next((option for option in OPTIONS if plain in (option.name, option.alias)), None)


def options_document(values: Mapping[str, Any]) -> dict[str, Any]:
    """The nested document that the given options, by name, describe; None means not given."""
    root: dict[str, Any] = {}
    for option in OPTIONS:
        value = values.get(option.name)
        if value is None:
            continue
        *parents, leaf = option.path.split(".")
        section = root
        for parent in parents:
            section = section.setdefault(parent, {})
        section[leaf] = dict(value) if isinstance(value, Mapping) else value  # another option may add to it
    return root
