"""The cluster of the suite: one that is started for it, or that of KUBECONFIG."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.waiting import until

ROOT = Path(__file__).parents[2]
STARTER = Path(os.environ.get("ELASTICDL_KUBE", ROOT.parent / "shared" / "kube" / "kube"))
HOST_IMAGE = "kube.here/host:1"  # an empty root: everything is mounted from this machine
ALLOWANCES = ("allow-host-path", "allow-root", "allow-pod-changes")  # labels of namespaces for the chart's policies
SLOT = "kube.here/slot"  # a scarce resource that needs no hardware


class NotStarted(Exception):
    """The cluster did not start; the message says why."""


class Kube:
    """A cluster, and the environment of programs that connect to it."""

    def __init__(self, environ: Mapping[str, str], *, is_ours: bool) -> None:
        self.environ = {**os.environ, **environ}
        self.is_ours = is_ours  # started by the suite: parts of it may be stopped

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True, timeout_s: float = 120.0) -> str:
        process = subprocess.run(
            ["kubectl", *arguments],
            env=self.environ, input=text, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        if check and process.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {process.stderr or process.stdout}")
        return process.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return document

    def wait_for_definition(self) -> None:
        """Waits until ElasticJobs are served. (`kubectl wait` fails on a definition that has no conditions yet.)"""
        established = "--output=jsonpath={.status.conditions[?(@.type=='Established')].status}"
        arguments = ("get", "crd/elasticjobs.elasticdl.org", established)
        until("ElasticJobs are served", lambda: self.kubectl(*arguments, check=False) == "True")

    def open_namespace(self, name: str) -> None:
        """Creates a namespace whose jobs may mount directories of the node and run as root."""
        self.kubectl("create", "namespace", name, check=False)
        self.kubectl(
            "label", "namespace", name, "--overwrite", *(f"elasticdl.org/{label}=true" for label in ALLOWANCES)
        )

    def starter(self, *arguments: str) -> str:
        """Runs the starter for faults and resources: `stop kubelet-2`, `slots node-1 4`."""
        assert self.is_ours
        return _start(*arguments)

    def elasticdl(
        self, *arguments: str, timeout_s: float = 300.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "elasticdl.cli", *arguments]
        environ = {**self.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False)
        if check and done.returncode:
            raise AssertionError(f"elasticdl {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done


def why_not() -> str:
    """Why the suite has no cluster; "" if it has one."""
    if STARTER.is_file() or os.environ.get("KUBECONFIG"):
        return ""
    return f"no cluster: neither {STARTER} (or ELASTICDL_KUBE) nor KUBECONFIG"


@contextmanager
def running(nodes: int = 2, slots: int = 4) -> Iterator[Kube]:
    if os.environ.get("KUBECONFIG") or not STARTER.is_file():  # a running cluster is used and left running
        config = os.environ["KUBECONFIG"]
        is_ours = STARTER.is_file() and config == _environ(_start("env"))["KUBECONFIG"]
        kube = Kube({"KUBECONFIG": config}, is_ours=is_ours)
        kube.open_namespace("default")
        yield kube
        return
    try:
        _start("up", "--nodes", str(nodes), "--slots", str(slots))
    except (AssertionError, subprocess.TimeoutExpired) as exc:
        raise NotStarted(str(exc)) from exc
    try:
        kube = Kube(_environ(_start("env")), is_ours=True)
        kube.open_namespace("default")
        yield kube
    finally:
        _start("down")


def _start(*arguments: str) -> str:
    done = subprocess.run([str(STARTER), *arguments], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise AssertionError(f"kube {' '.join(arguments)}: {done.stderr or done.stdout}")
    return done.stdout


def _environ(line: str) -> dict[str, str]:
    variables = dict(word.split("=", 1) for word in line.split()[1:])
    return {name: value.replace("$PATH", os.environ["PATH"]) for name, value in variables.items()}


def on_this_machine(extra: Sequence[str] = ()) -> dict[str, Any]:
    """A --cluster_spec with which pods run this checkout with this Python, without an image."""
    places = ["/usr", "/bin", "/lib", "/lib64", "/etc/ssl", sys.base_prefix, sys.prefix, str(ROOT), *extra]
    shown = [path for path in dict.fromkeys(places) if not path.startswith("/usr/") and Path(path).exists()]
    volumes = [{"name": f"host-{n}", "hostPath": {"path": path}} for n, path in enumerate(shown)]
    mounts = [{"name": f"host-{n}", "mountPath": path, "readOnly": True} for n, path in enumerate(shown)]
    environ = [
        {"name": "PATH", "value": f"{sysconfig.get_path('scripts')}:/usr/bin:/bin"},
        {"name": "PYTHONPATH", "value": str(ROOT / "src")},
        {"name": "HOME", "value": "/tmp"},
        {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
    ]
    containers = {
        role: {"spec": {"containers": [{"name": role, "volumeMounts": mounts, "env": environ}]}}
        for role in ("master", "worker", "ps")
    }
    root = {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}  # whose files these are
    return {
        "pod": {"spec": {"volumes": volumes, "securityContext": root}},
        **{f"{role}_pod": change for role, change in containers.items()},
    }


def write_adjustments(path: Path, *changes: dict[str, Any]) -> Path:
    document: dict[str, Any] = {}
    for change in changes:
        document |= change
    path.write_text(yaml.safe_dump(document))
    return path
