"""Traces of the simulator, of every format: jobs, or an error that says what is wrong with the file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from elasticdl.errors import DataError, SpecError
from elasticdl.sim.traces import source
from tests.fuzz.scratch import directory, file_with


def fuzz_one(data: bytes) -> None:
    path = file_with(data, "trace")
    try:
        jobs = list(islice(source.open_trace(str(path), directory()).jobs(), 100))
    except (DataError, SpecError):
        return
    assert all(job.submitted_at >= 0 and 1 <= job.min_workers <= job.max_workers for job in jobs)
    assert [job.submitted_at for job in jobs] == sorted(job.submitted_at for job in jobs)


def seeds() -> Iterator[bytes]:
    yield b"name,submitted_s,duration_s,workers,minimum,maximum,priority\na,0,60,2,1,4,1\nb,5.5,9,1,1,1,\n"
    yield b"timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:02:27,68,1,68,x\n2017-10-09 07:00:27,6,8,48,y\n"
    yield b"job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,2,0,100,resnet,360,0\n"
    yield b"name,time,application,num_replicas,batch_size\ncifar10-0,120,cifar10,2,128\n"
    yield b"""{"v100": {"('LM', 1)": {"null": 9.5, "('LM', 1)": [4.0, 4.0]}, "('LM', 2)": {"null": 18}}}"""
