"""Rights on a real cluster: a user, a master and an operator try requests with their own service accounts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.kube.errors import ApiError
from elasticdl.launcher import certificate_manager
from elasticdl.launcher.kubernetes import manifest
from elasticdl.spec.load import resolve_elastic_job
from tests.cluster import host_operator, processes
from tests.cluster.elastic_job import ElasticJob
from tests.cluster.kube import Kube
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

MINE, OPEN, OTHER = "rights-mine", "rights-open", "rights-other"  # watched; watched, all allowed; not watched
PATIENCE_S = 120.0
Document = dict[str, Any]


class Person:
    """Runs kubectl with the token of a service account."""

    def __init__(self, kube: Kube, account: str, namespace: str, directory: Path) -> None:
        token = kube.kubectl("create", "token", account, f"--namespace={namespace}").strip()
        config = yaml.safe_load(kube.kubectl("config", "view", "--raw", "--minify", "--flatten"))
        config["users"][0]["user"] = {"token": token}
        path = directory / f"{account}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        self.kubeconfig = str(path)
        self._environ = {**kube.environ, "KUBECONFIG": self.kubeconfig}

    def kubectl(self, *words: str, text: str | None = None) -> tuple[bool, str]:
        """Returns whether the command succeeded, and its output."""
        done = subprocess.run(
            ["kubectl", *words], env=self._environ, input=text, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode == 0, done.stdout + done.stderr

    def may(self, *words: str) -> bool:
        return self.kubectl("auth", "can-i", *words)[0]

    def create(self, document: Document) -> tuple[bool, str]:
        """Creates an object as a dry run on the server."""
        return self.kubectl("create", "--dry-run=server", "--filename=-", text=json.dumps(document))


@pytest.fixture(scope="module")
def cluster(kube: Kube) -> Iterator[Kube]:
    """The operator of two namespaces, with the chart's policies."""
    for name in (MINE, OTHER):
        kube.kubectl("create", "namespace", name)
    kube.open_namespace(OPEN)
    try:
        with host_operator.running(kube, f"namespaces={{{MINE},{OPEN}}}"):
            yield kube
            for name in (MINE, OPEN, OTHER):
                kube.kubectl("delete", "elasticjobs", "--all", f"--namespace={name}", "--timeout=100s", check=False)
    finally:
        for name in (MINE, OPEN, OTHER):
            kube.kubectl("delete", "namespace", name, "--timeout=100s")


@pytest.fixture(scope="module")
def student(cluster: Kube, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """May have ElasticJobs in a namespace, and nothing else."""
    here = f"--namespace={MINE}"
    cluster.kubectl("create", "serviceaccount", "student", here)
    bound = ("--clusterrole=elasticdl-job-editor", f"--serviceaccount={MINE}:student", here)
    cluster.kubectl("create", "rolebinding", "students", *bound)
    cluster.kubectl("create", "serviceaccount", "powerful", here)
    for name in ("mine", "theirs"):
        cluster.kubectl("create", "secret", "generic", name, "--from-literal=KEY=x", here)
    read = ("--verb=get", "--resource=secrets", "--resource-name=mine", here)
    cluster.kubectl("create", "role", "reads-mine", *read)
    cluster.kubectl(
        "create", "rolebinding", "reads-mine", "--role=reads-mine", f"--serviceaccount={MINE}:student", here
    )
    user = Person(cluster, "student", MINE, tmp_path_factory.mktemp("student"))
    until("the rights are in force", lambda: user.may("create", "elasticjobs.elasticdl.org", here))
    until("the policy is in force", lambda: not user.create(job(cluster={"is_root": True}))[0])
    return user


def job(name: str = "plain", namespace: str = MINE, **spec: Any) -> Document:
    """An ElasticJob that a person may write; its image is nowhere, so its master never runs."""
    cluster = {"image": "registry.invalid/zoo:1", **spec.pop("cluster", {})}
    defaults = {
        "model": {"definition": "m.m.f"},
        "data": {"training": "/data"},
        "workers": {"replicas": 1, "min": 1, "max": 2},
        "cluster": cluster,
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "elasticdl.org/v1", "kind": "ElasticJob", "metadata": metadata, "spec": defaults | spec}


def pod_change(role: str = "worker", **container: Any) -> Document:
    return {"overrides": {f"{role}_pod": {"spec": {"containers": [{"name": role, **container}]}}}}


# ---- the operator


def test_an_operator_of_named_namespaces_has_rights_only_there(cluster: Kube) -> None:
    for name in (MINE, OTHER):
        cluster.kubectl("create", "--filename=-", text=json.dumps(job("seen", name)))
    watched, unwatched = (f"--namespace={name}" for name in (MINE, OTHER))
    acting = f"--as={host_operator.USER}"

    until(
        "the master of the job in a namespace that is watched",
        lambda: cluster.kubectl("get", "statefulset", "seen-master", watched, "--ignore-not-found"),
        PATIENCE_S,
    )
    unwatched_job = cluster.get("elasticjob", "seen", unwatched)
    rights = {
        (verb, resource, scope): cluster.kubectl("auth", "can-i", verb, resource, scope, acting, check=False).strip()
        for verb, resource in (("list", "elasticjobs.elasticdl.org"), ("create", "pods"), ("get", "secrets"))
        for scope in (watched, unwatched, "--all-namespaces")
    }

    assert "finalizers" not in unwatched_job["metadata"] and "status" not in unwatched_job
    assert {answer for (*_, scope), answer in rights.items() if scope == watched} == {"yes"}
    assert {answer for (*_, scope), answer in rights.items() if scope != watched} == {"no"}
    assert not cluster.kubectl("get", "clusterrolebinding", "elasticdl-operator", "--ignore-not-found")
    log = cluster.kubectl("logs", "deployment/elasticdl-operator", f"--namespace={host_operator.NAMESPACE}")
    assert "orbidden" not in log, log


# ---- who may create an ElasticJob may not thereby run any pod


def test_a_job_editor_can_create_no_pods_and_label_no_namespace(student: Person) -> None:
    here = f"--namespace={MINE}"

    assert student.may("create", "elasticjobs.elasticdl.org", here)
    for verb, resource in (
        ("create", "pods"),
        ("create", "statefulsets"),
        ("get", "secrets/theirs"),
        ("create", "roles"),
    ):
        assert not student.may(verb, resource, here), (verb, resource)
    assert not student.kubectl("label", "namespace", MINE, "elasticdl.org/allow-root=true")[0]


ALLOWED: dict[str, Document] = {
    "plain": {},
    "own secret": {"env_from_secrets": ["mine"]},
    "claim": {"volumes": [{"claim_name": "data", "mount_path": "/data"}], "journal_claim": "data"},
    "priority": {"worker": {"priority": "0.5"}, "master": {"priority": "high"}},
    "env and shm": {
        "overrides": {
            "pod": {"metadata": {"annotations": {"team": "vision"}}, "spec": {"dnsPolicy": "Default"}},
            "worker_pod": {
                "spec": {
                    "runtimeClassName": "nvidia",
                    "containers": [
                        {
                            "name": "worker",
                            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
                            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                        }
                    ],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                }
            },
            "service": {"metadata": {"annotations": {"prometheus.io/scrape": "true"}}},
        }
    },
}
REFUSED: dict[str, tuple[Document, str]] = {
    "directory of the node": ({"volumes": [{"host_path": "/etc", "mount_path": "/x"}]}, "allow-host-path"),
    "root": ({"is_root": True}, "allow-root"),
    "another account": ({"service_account": "powerful"}, "impersonate"),
    "a Secret of others": ({"env_from_secrets": ["mine", "theirs"]}, "that you may get yourself"),
    "a Secret of others, for images": ({"image_pull_secrets": ["theirs"]}, "that you may get yourself"),
    "the cluster's priority": ({"worker": {"priority": "system-node-critical"}}, "is reserved for the cluster itself"),
    "network of the node": ({"overrides": {"pod": {"spec": {"hostNetwork": True}}}}, "allow-pod-changes"),
    "processes of the node": ({"overrides": {"ps_pod": {"spec": {"hostPID": True}}}}, "allow-pod-changes"),
    "account by a change": ({"overrides": {"master_pod": {"spec": {"serviceAccountName": "powerful"}}}}, "overrides"),
    "token by a change": ({"overrides": {"worker_pod": {"spec": {"automountServiceAccountToken": True}}}}, "overrides"),
    "no security context": ({"overrides": {"pod": {"spec": {"securityContext": None}}}}, "overrides"),
    "privileged": (pod_change(securityContext={"privileged": True}), "env, volumeMounts and resources"),
    "capabilities": (pod_change("master", securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), "env, volume"),
    "another container": (
        {"overrides": {"pod": {"spec": {"containers": [{"name": "extra"}]}}}},
        "master, worker and ps",
    ),
    "first container": ({"overrides": {"pod": {"spec": {"initContainers": [{"name": "x"}]}}}}, "overrides"),
    "Secret as a variable": (
        pod_change(env=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "KEY"}}}]),
        "env_from_secrets",
    ),
    "Secrets as variables": (pod_change(envFrom=[{"secretRef": {"name": "theirs"}}]), "env, volumeMounts"),
    "directory by a change": (
        {"overrides": {"pod": {"spec": {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}}}},
        "volumes here are",
    ),
    "Secret by a change": (
        {"overrides": {"pod": {"spec": {"volumes": [{"name": "x", "secret": {"secretName": "theirs"}}]}}}},
        "volumes here are",
    ),
    "owner by a change": ({"overrides": {"pod": {"metadata": {"ownerReferences": []}}}}, "annotations and labels"),
    "traffic of others": ({"overrides": {"service": {"spec": {"externalIPs": ["10.0.0.1"]}}}}, "overrides.service"),
}


@pytest.mark.parametrize("setting", ALLOWED)
def test_an_elastic_job_may_request_restricted_pods(student: Person, setting: str) -> None:
    done, output = student.create(job(cluster=ALLOWED[setting]))

    assert done, output


@pytest.mark.parametrize("setting", REFUSED)
def test_an_elastic_job_may_not_request_more(student: Person, setting: str) -> None:
    change, message = REFUSED[setting]

    done, output = student.create(job(cluster=change))

    assert not done and "ValidatingAdmissionPolicy 'elasticdl-jobs'" in output and message in output, output


@pytest.mark.parametrize("setting", ["root", "directory of the node", "privileged"])
def test_an_administrator_allows_more_in_a_namespace(cluster: Kube, setting: str) -> None:
    document = job(namespace=OPEN, cluster=REFUSED[setting][0])

    cluster.kubectl("create", "--dry-run=server", "--filename=-", text=json.dumps(document))


def test_a_job_that_was_accepted_cannot_be_changed_into_another(cluster: Kube, student: Person) -> None:
    here = f"--namespace={MINE}"
    done, output = student.kubectl("create", "--filename=-", text=json.dumps(job("changed")))
    assert done, output

    wished = student.kubectl("scale", "elasticjob/changed", "--replicas=2", here)
    change = json.dumps({"spec": {"cluster": {"is_root": True}}})
    rooted = student.kubectl("patch", "elasticjob/changed", here, "--type=merge", f"--patch={change}")
    until(
        "the operator to hold it, by a change of its own",
        lambda: cluster.get("elasticjob", "changed", here)["metadata"].get("finalizers"),
        PATIENCE_S,
    )

    assert wished[0], wished[1]
    assert not rooted[0] and "allow-root" in rooted[1], rooted[1]


# ---- masters


@pytest.fixture(scope="module")
def master(cluster: Kube, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """The account of a master, as the operator made it."""
    here = f"--namespace={MINE}"
    cluster.kubectl("create", "--filename=-", text=json.dumps(job("led", cluster={"env_from_secrets": ["lent"]})))
    until(
        "the master of the job",
        lambda: cluster.kubectl("get", "statefulset", "led-master", here, "--ignore-not-found"),
        PATIENCE_S,
    )
    user = Person(cluster, "elasticdl-master-led", MINE, tmp_path_factory.mktemp("master"))
    until("its rights are in force", lambda: user.may("create", "pods", here))
    return user


def worker_pod(**change: Any) -> Document:
    """A worker's pod, made by the code of the master."""
    spec = resolve_elastic_job(job("led", cluster={"env_from_secrets": ["lent"]}))
    owner = manifest.Owner("v1", "ConfigMap", "led-spec", "00000000-0000-0000-0000-00000000000a")
    pod = deepcopy(manifest.replica_pod(spec, "worker-7", "worker", owner))
    pod["spec"] |= change.pop("spec", {})
    pod["spec"]["containers"][0] |= change.pop("container", {})
    pod["metadata"] |= change
    return pod


AUTHORITY_KEY = {"key": certificate_manager.AUTHORITY_KEY, "path": "harmless.txt"}
POWERS: dict[str, tuple[Document, str]] = {
    "another account": ({"spec": {"serviceAccountName": "default"}}, "account of its workers"),
    "its own account": ({"spec": {"serviceAccountName": "elasticdl-master-led"}}, "account of its workers"),
    "a token": ({"spec": {"automountServiceAccountToken": True}}, "no token"),
    "another job": ({"labels": {"elasticdl.org/job": "seen"}}, "its own job"),
    "no job": ({"labels": {}}, "its own job"),
    "a directory of the node": (
        {"spec": {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, "container": {"volumeMounts": []}},
        "directories of the node",
    ),
    "root": ({"spec": {"securityContext": {"runAsUser": 0}}}, "as root"),
    "the node's network": ({"spec": {"hostNetwork": True}}, "share network"),
    "privileges": ({"container": {"securityContext": {"privileged": True}}}, "no privileges"),
    "no security context": ({"container": {"securityContext": None}}, "no privileges"),
    "the cluster's priority": ({"spec": {"priorityClassName": "system-node-critical"}}, "reserved for the cluster"),
    "Secrets it was not given": ({"container": {"envFrom": [{"secretRef": {"name": "theirs"}}]}}, "submitted with"),
    "a Secret as a variable": (
        {"container": {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "KEY"}}}]}},
        "submitted with",
    ),
    "a Secret of others, mounted": (
        {
            "spec": {"volumes": [{"name": "x", "secret": {"secretName": "theirs"}}]},
            "container": {"volumeMounts": []},
        },
        "mounts the Secret of its job",
    ),
    "the key of the authority": (
        {
            "spec": {"volumes": [{"name": "x", "secret": {"secretName": "led-secret", "items": [AUTHORITY_KEY]}}]},
            "container": {"volumeMounts": []},
        },
        "not authority.key",
    ),
    "all of its job's Secret": (
        {
            "spec": {"volumes": [{"name": "x", "secret": {"secretName": "led-secret"}}]},
            "container": {"volumeMounts": []},
        },
        "not authority.key",
    ),
    "a token, projected": (
        {
            "spec": {"volumes": [{"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "container": {"volumeMounts": []},
        },
        "projected",
    ),
}


def test_a_master_can_create_the_pods_of_its_job(master: Person) -> None:
    done, output = master.create(worker_pod())

    assert done, output


@pytest.mark.parametrize("power", POWERS)
def test_a_master_can_create_no_other_pods(master: Person, power: str) -> None:
    change, message = POWERS[power]

    done, output = master.create(worker_pod(**deepcopy(change)))

    assert not done and "ValidatingAdmissionPolicy 'elasticdl-masters'" in output and message in output, output


def test_a_master_has_no_rights_on_objects_of_others(cluster: Kube, master: Person) -> None:
    here = f"--namespace={MINE}"
    cluster.kubectl("run", "bystander", "--image=registry.invalid/x:1", here)
    cluster.kubectl("create", "configmap", "led-journal-of-others", here)

    refused = {
        "pod": master.kubectl("delete", "pod", "bystander", here),
        "new ConfigMap": master.kubectl("create", "configmap", "anything", here, "--dry-run=server"),
        "ConfigMap": master.kubectl("delete", "configmap", "led-journal-of-others", here),
        "the spec of its job": master.kubectl("delete", "configmap", "led-spec", here),
    }
    allowed = [
        master.kubectl("create", "configmap", "led-status", here, "--dry-run=server"),
        master.kubectl("create", "configmap", "led-journal-000001", here, "--dry-run=server"),
    ]

    for subject, (done, output) in refused.items():
        assert not done and "elasticdl-masters" in output, (subject, output)
    assert all(done for done, _ in allowed), allowed
    assert not master.may("get", "secrets/theirs", here) and master.may("get", "secrets/lent", here)


def test_a_master_can_write_only_the_status_of_its_own_job(
    cluster: Kube, master: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.kubectl("create", "--filename=-", text=json.dumps(job("beside")))
    monkeypatch.setenv("KUBECONFIG", master.kubeconfig)
    change = {"status": {"reason": "written by its master"}}

    with Api.connect() as api:
        api.patch(kinds.ELASTIC_JOB, "led", change, MINE, "status")
        with pytest.raises(ApiError, match="its own job only"):
            api.patch(kinds.ELASTIC_JOB, "beside", change, MINE, "status")


# ---- a job under these rights, its health, its metrics


def test_a_job_runs_and_a_frozen_master_is_restarted(cluster: Kube, tmp_path: Path) -> None:
    elastic_job = ElasticJob(cluster, "healthy", tmp_path, OPEN)
    elastic_job.apply(1, slow=True)
    elastic_job.wait_members(1, step=2)
    pod = f"{elastic_job.name}-master-0"
    health = cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{OPEN}/pods/{pod}:50003/proxy/healthz")
    (frozen,) = [process.pid for process in processes.running("-m", "elasticdl.launcher.kubernetes.pod", "master")]

    os.kill(frozen, signal.SIGSTOP)
    elastic_job.wait(
        lambda: elastic_job.pods("master")[pod]["status"]["containerStatuses"][0]["restartCount"] >= 1, "another master"
    )
    elastic_job.hurry()

    assert health == "ok\n"
    assert elastic_job.wait_phase("Succeeded")["step"] > 0


def test_only_namespaces_with_the_label_can_scrape_metrics(cluster: Kube, master: Person) -> None:
    """Checks the policies only: the network of this cluster does not enforce them."""
    scraping = [{"namespaceSelector": {"matchLabels": {"elasticdl.org/scrape-metrics": "true"}}}]
    policies = [
        cluster.get("networkpolicy", "led-metrics", f"--namespace={MINE}"),
        cluster.get("networkpolicy", "elasticdl-operator", f"--namespace={host_operator.NAMESPACE}"),
    ]

    for policy in policies:
        (door,) = policy["spec"]["ingress"]
        assert door["from"] == scraping and len(door["ports"]) == 1
