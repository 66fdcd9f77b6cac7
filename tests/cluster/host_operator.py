"""The operator as deploy/manifests installs it, but with this machine as its image: there is nothing to build."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.cluster.kube import HOST_IMAGE, ROOT, Kube, on_this_machine

NAMESPACE = "elasticdl"
USER = f"system:serviceaccount:{NAMESPACE}:elasticdl-operator"


@contextmanager
def running(kube: Kube, *values: str) -> Iterator[None]:
    """Until the end of the block, when all that was not there before goes again. `values`: of the chart."""
    made = []
    try:
        for document in chart(kube, *values) if values else manifests(kube):
            text = json.dumps(here(document))
            if kube.kubectl("create", "--filename=-", text=text, check=False):
                made.append(text)
        kube.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticdl.org", "--timeout=60s")
        _ready(kube)
        yield
    finally:
        for text in reversed(made):
            kube.kubectl("delete", "--filename=-", "--ignore-not-found", "--timeout=100s", text=text)


def manifests(kube: Kube) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(kube.kubectl("kustomize", str(ROOT / "deploy" / "manifests"))))


def chart(kube: Kube, *values: str) -> list[dict[str, Any]]:
    options = [word for value in values for word in ("--set", value)]
    done = subprocess.run(
        ["helm", "template", "elasticdl", str(ROOT / "deploy" / "chart"), "--namespace", NAMESPACE, *options],
        env=kube.environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [namespace, *(one for one in yaml.safe_load_all(done.stdout) if one)]


def _ready(kube: Kube) -> None:
    here = ("deployment/elasticdl-operator", f"--namespace={NAMESPACE}")
    try:
        kube.kubectl("rollout", "status", *here, "--timeout=60s")
    except AssertionError as exc:
        told = kube.kubectl("describe", "pods", f"--namespace={NAMESPACE}", check=False)
        raise AssertionError(f"{exc}\n{told}\n{kube.kubectl('logs', *here, check=False)}") from exc


def here(document: dict[str, Any]) -> dict[str, Any]:
    """A Deployment with this machine as its image; all else as it is."""
    if document["kind"] != "Deployment":
        return document
    seen = on_this_machine()
    mounted = seen["master_pod"]["spec"]["containers"][0]
    spec = document["spec"]["template"]["spec"]
    spec["volumes"] += seen["pod"]["spec"]["volumes"]
    spec["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0}  # whose files these are
    container = spec["containers"][0]
    container |= {"image": HOST_IMAGE, "env": mounted["env"]}
    container["volumeMounts"] += mounted["volumeMounts"]
    document["spec"]["strategy"] = {"type": "Recreate"}
    return document
