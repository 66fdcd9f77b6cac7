"""job.yaml, and the spec of an ElasticJob: a job that is read is the same when it is written and read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elasticdl.errors import SpecError
from elasticdl.spec import JobSpec, load
from elasticdl.spec.load import resolve_elastic_job
from tests.fuzz.scratch import file_with


def fuzz_one(data: bytes) -> None:
    try:
        file = file_with(data, "job.yaml")
        document = load.make_paths_absolute(load.read_yaml_file(file), file.absolute().parent)
    except SpecError as exc:
        str(exc).encode()  # it can be printed
        return
    _resolve(lambda: load.resolve_job(document, "job.yaml"), len(data))
    _resolve(
        lambda: resolve_elastic_job({"metadata": {"name": "job", "namespace": "team"}, "spec": document}), len(data)
    )


def _resolve(resolve: Callable[[], JobSpec], size: int) -> None:
    try:
        job = resolve()
    except SpecError as exc:
        str(exc).encode()
        return
    text = job.model_dump_json()
    assert JobSpec.model_validate_json(text).model_dump_json() == text  # NaN differs from itself, but its text does not
    assert len(text) <= 64 * size + (2 << 20)  # the expansion of aliases is limited


def seeds() -> Iterator[bytes]:
    yield (
        b"name: mine\nmodel: {definition: mnist.mnist.forward, params: {lr: 1e-3}}\n"
        b"data: {training: a.csv, columns: [x, y]}\n"
    )
    yield (
        b"name: mine\nkind: script\nscript: {path: train.py, arguments: [--lr, '0.1']}\n"
        b"workers: {replicas: 4, min: 2, max: 8}\ntiming: {grace_period_s: 3}\n"
        b"checkpoint: {directory: ckpt, every_steps: 10}\n"
        b"plan: {epochs: 2, global_batch_size: 64}\n"
    )
    yield (
        b"name: mine\nmodel: {definition: a.b}\ndata: {training: ~/x}\nps: {replicas: 2, mode: async}\n"
        b"cluster:\n  image: i:1\n  worker: {requests: {cpu: 1, memory: 4Gi}, priority: '0.5'}\n"
        b"  volumes: [{claim_name: c, mount_path: /d}]\n"
    )
