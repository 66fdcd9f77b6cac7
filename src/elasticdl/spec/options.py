"""Every option of the command line and the field of the JobSpec it sets, as one table.

The table is plain data: `elasticdl.cli` turns it into click options, and `spec.load` names them in its messages.
Options that the original ElasticDL had keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.spec.cluster_options import CLUSTER_OPTIONS
from elasticdl.spec.option import ALL_COMMANDS, EVALUATE, MODEL_COMMANDS, PREDICT, RUN, TRAIN, Option, OptionSyntax

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
        "Rows that cannot be read: error (default) ends the job, skip leaves them out, mark writes the reason.",
        (PREDICT,),
        metavar="ACTION",
    ),
    Option(
        "id_column",
        "prediction.id_column",
        _DATA,
        "Column of the data to write next to each prediction.",
        (PREDICT,),
        metavar="NAME",
    ),
    Option(
        "data_format",
        "data.format",
        _DATA,
        "auto, csv, jsonl, parquet, tfrecord, images or python. Default: auto, by the file name.",
        MODEL_COMMANDS,
        metavar="FORMAT",
    ),
    Option(
        "columns",
        "data.columns",
        _DATA,
        "Column names of a CSV file without a header line, or the columns to read.",
        MODEL_COMMANDS,
        OptionSyntax.LIST,
        "A,B,…",
    ),
    Option(
        "delimiter",
        "data.delimiter",
        _DATA,
        "Character between the fields of a CSV file, or tab. Default: by the file's name.",
        MODEL_COMMANDS,
        metavar="C",
    ),
    Option(
        "unpack_limit",
        "data.unpack_limit",
        _DATA,
        "Largest size that one compressed file may have when it is unpacked on disk.",
        MODEL_COMMANDS,
        metavar="SIZE",
    ),
    Option(
        "data_retry_s",
        "data.retry_s",
        _DATA,
        "How long to wait for a file, a database or an object store that cannot be reached.",
        MODEL_COMMANDS,
        metavar="SECONDS",
    ),
    Option(
        "bad_records",
        "data.bad_records",
        _DATA,
        "Skip and report up to N records that cannot be read or for which a function fails. Default: 0.",
        (TRAIN, EVALUATE, RUN),
        metavar="N",
    ),
    Option(
        "shard_records",
        "data.shard_records",
        _DATA,
        "Records in a shard, the unit that is shuffled and leased to a worker.",
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

_JOB, _MODEL, _PLAN = "Job", "Model", "Plan (determines the result bit for bit)"
_PS = "Parameter servers"
_WORKERS, _CHECKPOINTS, _EVALUATION, _SYSTEM = "Workers", "Checkpoints and output", "Evaluation", "System"

OPTIONS: tuple[Option, ...] = (
    Option(
        "job_name", "name", _JOB, "Name of the job, unique on this machine. Default: a generated one.", ALL_COMMANDS
    ),
    Option("log_level", "log_level", _JOB, "DEBUG, INFO, WARNING or ERROR.", ALL_COMMANDS, metavar="LEVEL"),
    Option(
        "compat",
        "script.compat",
        _JOB,
        "ddp: run an unmodified torchrun script, which is restarted whenever the workers change.",
        (RUN,),
        metavar="KIND",
    ),
    Option("model_zoo", "model.zoo", _MODEL, "Directory of the model file.", MODEL_COMMANDS, metavar="DIR"),
    Option(
        "model_def",
        "model.definition",
        _MODEL,
        "Function that builds the model: mnist.mnist.forward is forward in <model_zoo>/mnist/mnist.py.",
        MODEL_COMMANDS,
        metavar="NAME",
    ),
    Option(
        "model_params",
        "model.params",
        _MODEL,
        "Keyword arguments for the model and the optimizer, with values in YAML. May be repeated.",
        MODEL_COMMANDS,
        OptionSyntax.MAPPING,
        '"a=1;b=[1,2]"',
    ),
    *_DATA_OPTIONS,
    Option("num_epochs", "plan.epochs", _PLAN, "Number of passes over the training data.", (TRAIN,), metavar="N"),
    Option("minibatch_size", "plan.minibatch_size", _PLAN, "Records per worker and step.", MODEL_COMMANDS, metavar="N"),
    Option(
        "global_batch_size",
        "plan.global_batch_size",
        _PLAN,
        "Records per step, of all workers together. Default: minibatch_size x num_workers.",
        (TRAIN,),
        metavar="N",
    ),
    Option(
        "logical_ranks",
        "plan.logical_ranks",
        _PLAN,
        "Number of fixed shares of the global batch. Default: max_workers.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option("seed", "plan.seed", _PLAN, "Seed of all random numbers.", (TRAIN,), metavar="N"),
    Option("max_steps", "plan.max_steps", _PLAN, "Stop after N steps.", (TRAIN,), metavar="N", alias="max_step"),
    Option(
        "learning_rate",
        "plan.learning_rate",
        _PLAN,
        "Learning rate, passed to optimizer(parameters, lr=…).",
        (TRAIN,),
        metavar="X",
    ),
    Option(
        "reproducible",
        "plan.reproducible",
        _PLAN,
        "Compute the same bits with any number of workers (default), or use plain all-reduce.",
        (TRAIN, RUN),
        OptionSyntax.SWITCH,
    ),
    Option(
        "adaptive_batch",
        "plan.lr_scaling",
        _PLAN,
        "Allow the batch to be scaled while the job runs; RULE scales the learning rate: adascale, sqrt or linear.",
        (TRAIN, RUN),
        metavar="RULE",
    ),
    Option(
        "batch_schedule",
        "plan.batch_schedule",
        _PLAN,
        "With --adaptive_batch: from step S on, each update uses K global batches.",
        (TRAIN, RUN),
        OptionSyntax.PAIRS,
        "S=K,S=K",
    ),
    Option(
        "max_batch_size",
        "plan.max_batch_size",
        _PLAN,
        "With --adaptive_batch: most records of one update. Default: 32 global batches.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option(
        "precision",
        "plan.precision",
        _PLAN,
        "Type to compute the loss in, by torch.autocast: fp32 (default), bf16 or fp16.",
        (TRAIN,),
        metavar="TYPE",
    ),
    Option(
        "micro_batch_size",
        "plan.micro_batch_size",
        _PLAN,
        "Most records of one backward pass; several passes make one update. Default: all of a logical rank.",
        (TRAIN,),
        metavar="N",
    ),
    Option(
        "guard_steps",
        "plan.guard_steps",
        _SYSTEM,
        "Compare weights, optimizer and script state of workers every N steps; a difference ends the job. 0: never.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option(
        "shuffle", "plan.shuffle", _PLAN, "Shuffle the records in each epoch (default).", (TRAIN,), OptionSyntax.SWITCH
    ),
    Option(
        "drop_last",
        "plan.drop_last",
        _PLAN,
        "Leave out the last batch of an epoch if it is short.",
        (TRAIN,),
        OptionSyntax.SWITCH,
    ),
    Option("num_workers", "workers.replicas", _WORKERS, "Number of workers.", MODEL_COMMANDS, metavar="N"),
    Option(
        "min_workers",
        "workers.min",
        _WORKERS,
        "Minimum number of workers: the job waits for them.",
        MODEL_COMMANDS,
        metavar="N",
    ),
    Option("max_workers", "workers.max", _WORKERS, "Maximum number of workers.", MODEL_COMMANDS, metavar="N"),
    Option("threads", "workers.threads", _WORKERS, "CPU threads of each worker.", ALL_COMMANDS, metavar="N"),
    Option(
        "cpu_capability",
        "workers.cpu_capability",
        _WORKERS,
        "Instruction set, if machines differ: default, avx2 or avx512. It changes the bits of the result.",
        ALL_COMMANDS,
        metavar="NAME",
    ),
    Option(
        "start_method",
        "workers.start_method",
        _WORKERS,
        "How workers of a local job start: fork (default) from a process that has imported torch, or spawn.",
        ALL_COMMANDS,
        metavar="METHOD",
    ),
    Option("device", "workers.device", _WORKERS, "cpu, cuda or auto.", ALL_COMMANDS, metavar="DEVICE"),
    Option(
        "failure_budget",
        "workers.failure_budget",
        _WORKERS,
        "Crashes of workers before the job fails. Preemptions count only without progress in between.",
        ALL_COMMANDS,
        metavar="N",
    ),
    Option(
        "address",
        "workers.address",
        _WORKERS,
        "Address that master and workers listen on.",
        ALL_COMMANDS,
        metavar="ADDRESS",
    ),
    Option(
        "num_ps_pods", "ps.replicas", _PS, "Number of parameter servers (ps).", (TRAIN,), metavar="N", alias="num_ps"
    ),
    Option(
        "ps_mode",
        "ps.mode",
        _PS,
        "hybrid (default; embeddings on ps, dense layers by all-reduce), async, sync or local.",
        (TRAIN,),
        metavar="MODE",
    ),
    Option(
        "ps_backups", "ps.backups", _PS, "Number of backups of each row, on other ps: 0 or 1.", (TRAIN,), metavar="N"
    ),
    Option("ps_memory", "ps.memory_limit", _PS, "Memory limit of each ps.", (TRAIN,), metavar="4Gi"),
    Option("ps_threads", "ps.threads", _PS, "Threads of each ps.", (TRAIN,), metavar="N"),
    Option(
        "max_staleness",
        "ps.max_staleness",
        _PS,
        "Refuse a push whose values are more than N updates old; it is computed again. 0: never.",
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
    Option(
        "grads_to_wait",
        "ps.grads_to_wait",
        _PS,
        "With --ps_mode=sync: number of pushes that make one update.",
        (TRAIN,),
        metavar="N",
    ),
    Option(
        "pull_every",
        "ps.pull_every",
        _PS,
        "With --ps_mode=local: steps between two pulls of the dense variables.",
        (TRAIN,),
        metavar="K",
        alias="get_model_steps",
    ),
    Option(
        "pipeline_depth",
        "ps.pipeline_depth",
        _PS,
        "Number of batches whose rows are sent while another batch is computed.",
        (TRAIN,),
        metavar="N",
    ),
    Option(
        "wire_dtype",
        "ps.wire_dtype",
        _PS,
        "Type of rows on the wire: float32, float16 or bfloat16.",
        (TRAIN,),
        metavar="TYPE",
    ),
    Option(
        "embedding_on_ps",
        "ps.embeddings",
        _PS,
        "Plain embedding layers that are moved to the ps: auto (large ones), all or none.",
        (TRAIN,),
        metavar="WHICH",
    ),
    Option(
        "embedding_bytes",
        "ps.embedding_bytes",
        _PS,
        "Size from which a plain embedding layer is large. Default: 2 MiB.",
        (TRAIN,),
        metavar="N",
    ),
    Option(
        "checkpoint_steps",
        "checkpoint.every_steps",
        _CHECKPOINTS,
        "Write a checkpoint every N steps.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option(
        "checkpoint_dir",
        "checkpoint.directory",
        _CHECKPOINTS,
        "Directory of the checkpoints. Default: in the job directory.",
        (TRAIN, RUN),
        metavar="DIR",
    ),
    Option(
        "checkpoint_retry_s",
        "checkpoint.retry_s",
        _CHECKPOINTS,
        "How long to retry the last checkpoint if it cannot be written, for example on a full disk.",
        (TRAIN, RUN),
        metavar="SECONDS",
    ),
    Option(
        "keep_checkpoint_max",
        "checkpoint.keep_last",
        _CHECKPOINTS,
        "Keep the newest N checkpoints.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option(
        "checkpoint_dir_for_init",
        "checkpoint.init_from",
        _CHECKPOINTS,
        "Start from this checkpoint, or from the newest one in this directory.",
        ALL_COMMANDS,
        metavar="DIR",
    ),
    Option(
        "resume",
        "checkpoint.resume",
        _CHECKPOINTS,
        "Resume the job called --job_name from its newest checkpoint.",
        (TRAIN, RUN),
        OptionSyntax.SWITCH,
    ),
    Option(
        "output", "output", _CHECKPOINTS, "Directory that the result is written to.", (TRAIN, PREDICT), metavar="DIR"
    ),
    Option("evaluation_steps", "evaluation.every_steps", _EVALUATION, "Evaluate every N steps.", (TRAIN,), metavar="N"),
    Option(
        "evaluation_epochs", "evaluation.every_epochs", _EVALUATION, "Evaluate every N epochs.", (TRAIN,), metavar="N"
    ),
    Option(
        "evaluation_wait",
        "evaluation.wait",
        _EVALUATION,
        "Wait for the result of each evaluation, so that callbacks act at the same step in every run.",
        (TRAIN,),
        OptionSyntax.SWITCH,
    ),
    Option(
        "log_steps",
        "observability.log_steps",
        _SYSTEM,
        "Record the loss of every N-th step. Default: of every step, but at most 5,000 points.",
        (TRAIN, RUN),
        metavar="N",
    ),
    Option(
        "timing",
        "timing",
        _SYSTEM,
        "A timeout, for example heartbeat_timeout_s=2. May be repeated.",
        ALL_COMMANDS,
        OptionSyntax.MAPPING,
        "KEY=VALUE",
    ),
    Option(
        "stall_timeout",
        "timing.stall_timeout_s",
        _SYSTEM,
        "Replace a worker without progress for this long, and for 20 usual steps. 0: never.",
        ALL_COMMANDS,
        metavar="SECONDS",
    ),
    Option(
        "metrics_port",
        "metrics_port",
        _SYSTEM,
        "Port of the Prometheus metrics. Default: any free port.",
        ALL_COMMANDS,
        metavar="N",
    ),
    Option(
        "tls",
        "security.tls",
        _SYSTEM,
        "Use mutual TLS, with certificates made for this job.",
        ALL_COMMANDS,
        OptionSyntax.SWITCH,
    ),
    Option(
        "tls_lifetime_s",
        "security.certificate_lifetime_s",
        _SYSTEM,
        "How long each certificate is valid. Default: a day. It is replaced after half of that time.",
        ALL_COMMANDS,
        metavar="SECONDS",
    ),
    Option(
        "tls_cert",
        "security.certificate",
        _SYSTEM,
        "A certificate of your own for all replicas, instead of certificates made for this job.",
        ALL_COMMANDS,
        metavar="FILE",
    ),
    Option("tls_key", "security.key", _SYSTEM, "Private key of --tls_cert.", ALL_COMMANDS, metavar="FILE"),
    Option("tls_ca", "security.ca", _SYSTEM, "Authority that signed --tls_cert.", ALL_COMMANDS, metavar="FILE"),
    Option(
        "insecure",
        "security.insecure",
        _SYSTEM,
        "With --address: allow other machines to reach the job without TLS.",
        ALL_COMMANDS,
        OptionSyntax.SWITCH,
    ),
    Option(
        "plain_nccl",
        "security.plain_nccl",
        _SYSTEM,
        "With TLS: let NCCL send gradients between machines unencrypted. Default: encrypted, through the host.",
        (TRAIN, RUN),
        OptionSyntax.SWITCH,
    ),
    *CLUSTER_OPTIONS,
)


def options_of(command: str) -> tuple[Option, ...]:
    """The options of one command, in the order of its help."""
    return tuple(option for option in OPTIONS if command in option.commands)


def find_option_for(path: str) -> Option | None:
    """The option that sets `path` of the JobSpec, if there is one."""
    return next((option for option in OPTIONS if option.path == path), None)


def find_option(name: str) -> Option | None:
    """The option called `name`, spelled with dashes or underscores."""
    normalized = name.replace("-", "_")
    return next((option for option in OPTIONS if normalized in (option.name, option.alias)), None)


def options_document(values: Mapping[str, Any]) -> dict[str, Any]:
    """The nested document that sets the values of these options, by name; None means not set."""
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
