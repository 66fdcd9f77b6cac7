"""A TensorFlow cluster on this machine as its guide sets one up: a coordinator, workers and ps of its strategy."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
from typing import Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _serve(cluster: dict[str, list[str]], job: str, task: int) -> None:
    import tensorflow as tf

    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=task, protocol="grpc").join()


def open_strategy(workers: int = 1, ps: int = 1) -> tuple[Any, Any]:
    """The strategy and its coordinator; this process is the chief. The servers end with it."""
    roles = {"worker": workers, "ps": ps, "chief": 1}
    cluster = {job: [f"127.0.0.1:{free_port()}" for _ in range(count)] for job, count in roles.items()}
    spawn = multiprocessing.get_context("spawn")
    for job, count in (("worker", workers), ("ps", ps)):
        for task in range(count):
            spawn.Process(target=_serve, args=(cluster, job, task), daemon=True).start()
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return strategy, tf.distribute.coordinator.ClusterCoordinator(strategy)
