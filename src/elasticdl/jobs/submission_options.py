"""The options of `elasticdl.submit`, with their types; written by tests/unit/jobs/submission_options.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypedDict


class SubmissionOptions(TypedDict, total=False):
    """Options of the command line by name, without the dashes. An option that is not given, or None, says nothing."""

    job_name: str | None
    log_level: str | None
    compat: str | None
    model_zoo: str | PathLike[str] | None
    model_def: str | None
    model_params: Mapping[str, Any] | str | None
    training_data: str | PathLike[str] | None
    validation_data: str | PathLike[str] | None
    prediction_data: str | PathLike[str] | None
    bad_rows: str | None
    id_column: str | None
    data_format: str | None
    columns: Sequence[str] | str | None
    delimiter: str | None
    unpack_limit: str | None
    data_retry_s: float | None
    bad_records: int | None
    shard_records: int | None
    data_reader_params: Mapping[str, Any] | str | None
    num_epochs: int | None
    minibatch_size: int | None
    global_batch_size: int | None
    logical_ranks: int | None
    seed: int | None
    max_steps: int | None
    learning_rate: float | None
    reproducible: bool | None
    adaptive_batch: str | None
    batch_schedule: Mapping[str, Any] | Mapping[int, int] | str | None
    max_batch_size: int | None
    precision: str | None
    micro_batch_size: int | None
    guard_steps: int | None
    shuffle: bool | None
    drop_last: bool | None
    num_workers: int | None
    min_workers: int | None
    max_workers: int | None
    threads: int | None
    cpu_capability: str | None
    start_method: str | None
    device: str | None
    failure_budget: int | None
    address: str | None
    num_ps_pods: int | None
    ps_mode: str | None
    ps_backups: int | None
    ps_memory: str | None
    ps_threads: int | None
    max_staleness: int | None
    lr_staleness_modulation: bool | None
    grads_to_wait: int | None
    pull_every: int | None
    pipeline_depth: int | None
    wire_dtype: str | None
    embedding_on_ps: str | None
    embedding_bytes: int | None
    checkpoint_steps: int | None
    checkpoint_dir: str | PathLike[str] | None
    checkpoint_retry_s: float | None
    keep_checkpoint_max: int | None
    checkpoint_dir_for_init: str | PathLike[str] | None
    resume: bool | None
    output: str | PathLike[str] | None
    evaluation_steps: int | None
    evaluation_epochs: int | None
    evaluation_wait: bool | None
    log_steps: int | None
    timing: Mapping[str, Any] | str | None
    stall_timeout: float | None
    metrics_port: int | None
    tls: bool | None
    tls_lifetime_s: float | None
    tls_cert: str | PathLike[str] | None
    tls_key: str | PathLike[str] | None
    tls_ca: str | PathLike[str] | None
    insecure: bool | None
    plain_nccl: bool | None
    image_name: str | None
    namespace: str | None
    master_resource_request: Mapping[str, Any] | Mapping[int, int] | str | None
    master_resource_limit: Mapping[str, Any] | Mapping[int, int] | str | None
    worker_resource_request: Mapping[str, Any] | Mapping[int, int] | str | None
    worker_resource_limit: Mapping[str, Any] | Mapping[int, int] | str | None
    ps_resource_request: Mapping[str, Any] | Mapping[int, int] | str | None
    ps_resource_limit: Mapping[str, Any] | Mapping[int, int] | str | None
    master_pod_priority: str | None
    worker_pod_priority: str | None
    ps_pod_priority: str | None
    volume: Sequence[Mapping[str, str]] | str | None
    envs: Mapping[str, Any] | Mapping[int, int] | str | None
    env_secrets: Sequence[str] | str | None
    image_pull_policy: str | None
    image_pull_secrets: Sequence[str] | str | None
    service_account: str | None
    node_selector: Mapping[str, Any] | Mapping[int, int] | str | None
    spread: str | None
    scheduler_name: str | None
    journal_claim: str | None
    max_memory: str | None
    cluster_spec: Mapping[str, Any] | str | PathLike[str] | None
    distribution_strategy: str | None
    workers: int | str | None
    script: str | PathLike[str] | None
    arguments: Sequence[str] | None
