"""Options of the original ElasticDL, or of another command, that are refused with the option to use instead."""

from __future__ import annotations

# Options of `train` that `run` does not have.
UNSUPPORTED_BY_RUN: dict[str, str] = {
    **{
        option: f"the script sets it, with elasticdl.torch.join(…, {argument}=…)"
        for option, argument in {
            "seed": "seed",
            "global_batch_size": "global_batch_size",
            "minibatch_size": "global_batch_size",
            "num_epochs": "epochs",
            "max_steps": "max_steps",
            "shuffle": "shuffle",
            "drop_last": "drop_last",
            "learning_rate": "learning_rate",
        }.items()
    },
    "precision": "the script sets it, with torch.autocast and step.backward(loss, scaler=…)",
    "micro_batch_size": "the script sets it, with step.backward(loss, records=n) for each micro-batch",
    "output": "the script saves its result itself, if job.is_first",
    "num_workers": "use --workers N",
    "min_workers": "use --workers MIN:MAX",
    "max_workers": "use --workers MIN:MAX",
}

# Options of `run` that an unmodified script would ignore.
_OWN_CHECKPOINTS = "an unmodified script writes its own checkpoints"
_OWN_BATCHES = "an unmodified script creates its own batches"
UNSUPPORTED_BY_COMPAT: dict[str, str] = {
    "logical_ranks": _OWN_BATCHES,
    "reproducible": "the result of an unmodified script depends on the number of workers",
    "adaptive_batch": _OWN_BATCHES,
    "batch_schedule": _OWN_BATCHES,
    "max_batch_size": _OWN_BATCHES,
    "device": "an unmodified script chooses its device, by LOCAL_RANK",
    "checkpoint_steps": _OWN_CHECKPOINTS,
    "checkpoint_dir": _OWN_CHECKPOINTS,
    "keep_checkpoint_max": _OWN_CHECKPOINTS,
    "checkpoint_dir_for_init": _OWN_CHECKPOINTS,
}

UNSUPPORTED: dict[str, str] = {
    "worker_image": "all pods have one image: use --image_name",
    "restart_policy": "the master replaces pods itself; --failure_budget is the number of crashes allowed",
    "cluster_spec_json": "use --cluster_spec with a YAML file, which may be JSON",
    "use_async": "use --ps_mode=async",
    "num_minibatches_per_task": "shards are sized in records: use --shard_records",
    "feed": "the function is always called dataset_fn: rename it in the model file",
    "job_command": "use `elasticdl run SCRIPT`",
}
