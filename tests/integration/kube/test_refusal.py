"""A master that cannot begin, as a process against a real API server: it leaves a result and is not started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.launcher.kubernetes import job_secrets, manifest, naming, pod
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from tests.integration.kube.apiserver import ApiServer
from tests.unit.launcher.jobs import SMALL, job
from tests.unit.launcher.kubernetes.test_pod import mount

SOURCE = str(Path(pod.__file__).parents[3])


def submitted(api: Api) -> JobSpec:
    spec = job(SMALL, namespace=api.namespace)
    master = api.create(manifest.master_stateful_set(spec, None))
    for document in manifest.job_objects(spec, job_secrets.create_secrets(spec), naming.Owner.from_object(master)):
        api.create(document)
    api.patch(kinds.STATEFUL_SET, "digits-master", {"spec": {"replicas": 1}})
    return spec


def run(server: ApiServer, api: Api, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = dict(os.environ) | {
        "PYTHONPATH": SOURCE,
        "KUBECONFIG": str(server.kubeconfig(namespace=api.namespace)),
        "ELASTICDL_POD_IP": "127.0.0.1",
        "ELASTICDL_POD_NAME": "digits-master-0",
        "ELASTICDL_NAMESPACE": api.namespace,
        "ELASTICDL_REPLICA": "master",
    }
    command = [sys.executable, "-m", *argv]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60.0, check=False)


def outcome(api: Api) -> tuple[dict[str, Any], int]:
    """The result, and how many pods the master shall have."""
    status, master = api.get(kinds.CONFIG_MAP, "digits-status"), api.get(kinds.STATEFUL_SET, "digits-master")
    assert status is not None and master is not None
    assert status["metadata"]["ownerReferences"][0]["uid"] == master["metadata"]["uid"]
    return json.loads(status["data"]["result.json"]), int(master["spec"]["replicas"])


def test_a_pod_that_lacks_what_it_needs_says_so(server: ApiServer, api: Api, tmp_path: Path) -> None:
    submitted(api)
    places = mount(tmp_path)
    (places.secret / "token").unlink()

    words = ["--spec", str(places.spec), "--secret", str(places.secret), "--state", str(places.state)]
    done = run(server, api, "elasticdl.launcher.kubernetes.pod", "master", *words)
    result, replicas = outcome(api)

    assert done.returncode == 2, done.stderr
    assert (result["phase"], result["exit_code"], replicas) == ("failed", 2, 0)
    assert "secret/token: expected a file" in result["reason"]


def test_a_master_whose_job_is_wrong_says_so(server: ApiServer, api: Api, tmp_path: Path) -> None:
    spec = submitted(api)
    directory = JobDirectory(tmp_path / "job")
    directory.create_in_pod(spec, "token")
    api.delete(kinds.CONFIG_MAP, "digits-spec")  # to which its pods would belong

    done = run(server, api, "elasticdl.master", str(directory.root), "--pods")
    result, replicas = outcome(api)

    assert done.returncode == 2, done.stderr
    assert (result["phase"], result["exit_code"], replicas) == ("failed", 2, 0)
    assert "has no ConfigMap of job digits" in result["reason"]
