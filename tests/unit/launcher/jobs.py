"""Jobs whose objects are in golden/: a small one, and one that sets everything."""

from __future__ import annotations

from typing import Any

from elasticdl.launcher.kubernetes import manifest
from elasticdl.launcher.kubernetes.job_secrets import LONG_LIVED_ROLES, JobSecrets
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.spec import JobSpec, load

ISSUED = {role: f"the certificate of a {role}" for role in LONG_LIVED_ROLES}
SECRETS = JobSecrets("the token", "the authority", "its key", ISSUED, '{"the": "keys"}')
MASTER_SET = Owner("apps/v1", "StatefulSet", "digits-master", "11111111-2222-3333-4444-555555555555")
DESCRIPTION = Owner("v1", "ConfigMap", "digits-spec", "22222222-3333-4444-5555-666666666666")
ELASTIC_JOB = Owner("elasticdl.org/v1", "ElasticJob", "test-train", "66666666-7777-8888-9999-000000000000")

SMALL: dict[str, Any] = {
    "name": "digits",
    "model": {"definition": "digits.forward", "zoo": "model_zoo"},
    "data": {"training": "/data/train.csv"},
    "cluster": {"image": "elasticdl:ci", "namespace": "default"},
}

ALL: dict[str, Any] = {
    "name": "test-train",
    "model": {"definition": "mnist_functional_api.mnist_functional_api.custom_model", "zoo": "model_zoo"},
    "data": {"training": "/data/mnist/train"},
    "workers": {"replicas": 4, "max": 8},
    "ps": {"replicas": 2},
    "timing": {"grace_period_s": 12.5},
    "metrics_port": 9090,
    "output": "model_output",
    "cluster": {
        "image": "registry.example.org/team/elasticdl:1.2",
        "namespace": "training",
        "image_pull_policy": "Always",
        "image_pull_secrets": ["registry"],
        "master": {"requests": {"cpu": "1", "memory": "4096Mi", "ephemeral-storage": "1024Mi"}, "priority": "high"},
        "worker": {
            "requests": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "1Gi", "gpu": "1"},
            "limits": {"cpu": "4", "memory": "6Gi"},
            "priority": "0.5",
        },
        "ps": {"requests": {"cpu": "1", "memory": "8Gi"}, "priority": "our-own-class"},
        "max_memory": "16Gi",
        "volumes": [
            {"claim_name": "data", "mount_path": "/data", "read_only": True},
            {"claim_name": "data", "mount_path": "/results", "sub_path": "results"},
            {"host_path": "/mnt/scratch", "mount_path": "/scratch"},
        ],
        "journal_claim": "masters",
        "env": {"TEAM": "vision"},
        "env_from_secrets": ["bucket-credentials"],
        "node_selector": {"pool": "training"},
        "tolerations": [{"key": "training", "operator": "Exists", "effect": "NoSchedule"}],
        "spread": "zones",
        "scheduler": "volcano",
        "queue": "team-a",
        "overrides": {
            "pod": {
                "metadata": {"annotations": {"team": "vision"}},
                "spec": {"dnsConfig": {"options": [{"name": "x"}]}},
            },
            "worker_pod": {"spec": {"containers": [{"name": "worker", "env": [{"name": "TEAM", "value": "speech"}]}]}},
            "service": {"metadata": {"annotations": {"scrape": "yes"}}},
        },
    },
}


def job(document: dict[str, Any], **cluster: Any) -> JobSpec:
    return load.resolve_job(load.merge_documents(document, {"cluster": cluster}))


def small_objects() -> list[dict[str, Any]]:
    spec = job(SMALL)
    pod = manifest.replica_pod(spec, "worker-0", "worker", DESCRIPTION)
    return [manifest.master_stateful_set(spec, None), *manifest.job_objects(spec, SECRETS, MASTER_SET), pod]


def all_objects() -> list[dict[str, Any]]:
    spec, settings = job(ALL), {"ATEN_CPU_CAPABILITY": "avx2"}
    owner = DESCRIPTION._replace(name="test-train-spec")
    pods = [
        manifest.replica_pod(spec, "worker-3", "worker", owner, is_high=True, environ=settings),
        manifest.replica_pod(spec, "worker-4", "worker", owner, is_high=False, memory_raises=2),
        manifest.replica_pod(spec, "ps-0", "ps", owner),
    ]
    return [manifest.master_stateful_set(spec, ELASTIC_JOB), *manifest.job_objects(spec, SECRETS, ELASTIC_JOB), *pods]


GOLDEN = {"small": small_objects, "all": all_objects}


def pod_spec(document: dict[str, Any]) -> dict[str, Any]:
    spec = document["spec"]["template"]["spec"] if document["kind"] == "StatefulSet" else document["spec"]
    assert isinstance(spec, dict)
    return spec


def container(document: dict[str, Any]) -> dict[str, Any]:
    container = pod_spec(document)["containers"][0]
    assert isinstance(container, dict)
    return container


def worker(spec: JobSpec, **changes: Any) -> dict[str, Any]:
    return manifest.replica_pod(spec, "worker-0", "worker", MASTER_SET, **changes)
