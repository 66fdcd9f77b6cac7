"""The definition of ElasticJobs, judged by a real API server and used by kubectl."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from elasticdl.kube.api import Api
from elasticdl.kube.errors import InvalidObject
from elasticdl.kube.kinds import ELASTIC_JOB
from elasticdl.spec.load import resolve_elastic_job
from tests.integration.kube.apiserver import ApiServer, programs
from tests.integration.kube.elastic_job import install, resource

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def jobs(api: Api) -> Api:
    install(api)
    return api


@pytest.fixture
def kubectl(server: ApiServer, namespace: str) -> Kubectl:
    program = (programs() or pytest.fail("no programs")) / "kubectl"
    if not program.exists():
        pytest.skip("no kubectl beside kube-apiserver")
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig(namespace=namespace))}

    def run(*words: str, document: object = None) -> subprocess.CompletedProcess[str]:
        text = json.dumps(document) if document else None
        return subprocess.run(
            [str(program), *words], env=environ, input=text, text=True, capture_output=True, timeout=60
        )

    return run


def changed(path: str, value: Any) -> dict[str, Any]:
    """A good job with one thing set; None takes it away."""
    document = resource("mnist")
    *parents, leaf = path.split(".")
    node = document
    for parent in parents:
        node = node.setdefault(parent, {})
    if value is None:
        del node[leaf]
    else:
        node[leaf] = value
    return document


def test_a_job_is_kept_as_it_was_meant(jobs: Api, namespace: str) -> None:
    document = resource("mnist")

    created = jobs.create(deepcopy(document))

    assert created["spec"]["model"]["params"] == {"hidden": 128, "layers": [1, {"wide": True}]}
    assert resolve_elastic_job(created) == resolve_elastic_job({**document, "metadata": created["metadata"]})


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("spec.workers.replicas", 9, "replicas is outside min .. max"),
        ("spec.workers.replicas", 0, "greater than or equal to 1"),
        ("spec.workers.min", 9, "min is above max"),
        ("spec.model", None, "needs model.definition"),
        ("spec.kind", "script", "script: a job of kind script needs script.path"),
        ("spec.kind", "training!", "Unsupported value"),
        ("spec.cluster", None, "spec.cluster: Required value"),
        ("spec.cluster.image", None, "spec.cluster.image: Required value"),
        ("spec.cluster.image", "", "spec.cluster.image"),
        ("spec.cluster.worker.requests.memory", "4GB", "write 500m, 4, 4G or 4Gi, not 4GB"),
        ("spec.cluster.worker.requests.gpus", 1, "VENDOR/DEVICE"),
        ("spec.cluster.worker.limits.memory", "1Mi", "limits: a limit is below the request"),
        (
            "spec.cluster.ps",
            {"requests": {"a.b/c": 1}, "limits": {"a.b/c": 2}},
            "the limit of a device equals its request",
        ),
        ("spec.cluster.queue", "q" * 64, "spec.cluster.queue"),
        ("spec.cluster.volumes", [{"mount_path": "/data"}], "either claim_name or host_path"),
        ("spec.cluster.volumes", [{"mount_path": "data", "claim_name": "c"}], "mount_path"),
        ("spec.ps", {"replicas": 0}, "ParameterServerStrategy needs at least one ps"),
        ("spec.ps", {"replicas": 1, "backups": 1}, "needs a second ps"),
        ("spec.ps", {"replicas": 1, "grads_to_wait": 2}, "only the sync mode"),
        ("spec.ps", {"replicas": 1, "pull_every": 2}, "only the local mode"),
        ("spec.ps", {"replicas": 1, "max_staleness": 2}, "use mode: async"),
        ("spec.strategy", "AllreduceStrategy", "AllreduceStrategy has no ps"),
        ("spec.plan.logical_ranks", 7, "use at least workers.max"),
        ("spec.timing", {"grace_period_s": 0}, "grace_period_s"),
        ("metadata.name", "a" * 46, "use at most 45 characters"),
        ("metadata.name", "my.job", "use a-z, 0-9 and '-'"),
    ],
)
def test_a_bad_job_is_refused_with_words_that_say_why(jobs: Api, path: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        jobs.create(changed(path, value), dry_run=True)

    assert words in str(caught.value)


def test_kubectl_scales_shows_and_explains(jobs: Api, namespace: str, kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", document=resource("mnist")).returncode == 0

    scaled = kubectl("scale", "elasticjob/mnist", "--replicas=5")
    refused = kubectl("scale", "elasticjob/mnist", "--replicas=99")
    status = {
        "phase": "Running",
        "workersText": "3/5 (2-8)",
        "workers": {"ready": 3, "desired": 5, "min": 2, "max": 8},
        "progress": "43 %",
        "metric": "accuracy 0.91",
        "selector": "elasticdl.org/job=mnist",
    }
    jobs.patch(ELASTIC_JOB, "mnist", {"status": status}, sub="status")
    head, line = kubectl("get", "elasticjobs").stdout.splitlines()
    explained = kubectl("explain", "elasticjob.spec.workers").stdout

    assert scaled.returncode == 0, scaled.stderr
    assert (jobs.get(ELASTIC_JOB, "mnist") or {})["spec"]["workers"]["replicas"] == 5
    assert "replicas is outside min .. max" in refused.stderr
    assert head.split() == ["NAME", "PHASE", "WORKERS", "PROGRESS", "METRIC", "AGE"]
    assert line.split()[:-1] == ["mnist", "Running", "3/5", "(2-8)", "43", "%", "accuracy", "0.91"]
    assert "Number of workers and their properties." in explained
    assert "Maximum number of workers. 0: replicas." in explained


def test_a_key_that_does_not_exist_is_refused_by_kubectl(jobs: Api, kubectl: Kubectl) -> None:
    refused = kubectl("apply", "-f", "-", document=changed("spec.workers.wishes", 3))

    assert refused.returncode != 0
    assert 'unknown field "spec.workers.wishes"' in refused.stderr
