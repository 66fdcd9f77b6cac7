"""A web service on the cluster, as a Deployment and a Service, and a visitor that requests its page all the time.

It is this machine's nginx, mounted into an empty image, or Python's server where apt cannot install nginx.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from experiment import HOST_IMAGE, Kube, on_this_machine
from slot_usage import SLOT

NAME = "web"
PAGE = "<html><body>The page of the day.</body></html>\n"
NGINX = Path("/usr/sbin/nginx")
PORT = 8080
DRAIN_S = 2  # a deleted pod serves until every node knows that it is deleted
REQUEST_INTERVAL_S = 0.05
RESPONSE_TIMEOUT_S = 2.0

_CONF = f"""daemon off; pid /tmp/nginx.pid; worker_processes 1;
events {{}}
http {{
  access_log off;
  client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;
  server {{ listen {PORT}; root /web; add_header Pod $hostname; }}
}}
"""  # noqa: E501


def ensure_nginx() -> str:
    """Installs nginx if it is missing and we are root. Returns the name of the server that will be used."""
    origin = ""
    if not NGINX.exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install_command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "nginx-light"]
        subprocess.run(["apt-get", "update", "-qq"], env=environ, capture_output=True, timeout=120, check=False)
        subprocess.run(install_command, env=environ, capture_output=True, timeout=300, check=False)
        origin = ", installed by apt for this run"
    if not NGINX.exists():
        return "Python's http.server (no nginx here)"
    version = subprocess.run([str(NGINX), "-v"], capture_output=True, text=True, timeout=10, check=True).stderr
    return version.removeprefix("nginx version: ").strip() + origin


def manifests() -> str:
    """Returns a ConfigMap, a Service and a Deployment of zero replicas: of high priority, with one slot each."""
    mounts = on_this_machine()["worker_pod"]["spec"]["containers"][0]["volumeMounts"]
    nginx = [str(NGINX), "-e", "stderr", "-c", "/web/nginx.conf"]
    python = [sys.executable, "-m", "http.server", str(PORT), "--directory", "/web"]
    container = {
        "name": NAME, "image": HOST_IMAGE, "command": nginx if NGINX.exists() else python,
        "volumeMounts": [*mounts, {"name": "web", "mountPath": "/web"}],
        "resources": {"requests": {SLOT: 1, "cpu": "10m"}, "limits": {SLOT: 1}},
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_S}}},
    }  # fmt: skip
    pod = {
        "priorityClassName": "elasticdl-high", "terminationGracePeriodSeconds": DRAIN_S + 3, "containers": [container],
        "securityContext": {"runAsUser": 10001, "runAsGroup": 10001} if NGINX.exists() else {},
        "volumes": [*on_this_machine()["pod"]["spec"]["volumes"], {"name": "web", "configMap": {"name": NAME}}],
    }  # fmt: skip
    labels = {"app": NAME}
    items: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"index.html": PAGE, "nginx.conf": _CONF}},
        {"apiVersion": "v1", "kind": "Service", "spec": {
            "selector": labels, "ports": [{"port": 80, "targetPort": PORT}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod}}},
    ]  # fmt: skip
    for item in items:
        item["metadata"] = {"name": NAME}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def service_address(kube: Kube) -> str:
    return str(kube.get("service", NAME)["spec"]["clusterIP"])


def scale_deployment(kube: Kube, replicas: int) -> None:
    kube.kubectl("scale", "deployment", NAME, f"--replicas={replicas}")


def delete_service(kube: Kube) -> None:
    kube.kubectl("delete", f"deployment/{NAME}", f"service/{NAME}", f"configmap/{NAME}", "--ignore-not-found")


class Visitor:
    """Requests the page over a new connection each time, and records which pod answered and what failed."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._stopped = threading.Event()
        self.served: dict[str, int] = {}  # pages by pod
        self.failures: list[str] = []
        self.slowest_s = 0.0
        self._thread = threading.Thread(target=self._run, name="visitor", daemon=True)

    def __enter__(self) -> Visitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(REQUEST_INTERVAL_S):
            started_at = time.monotonic()
            try:
                pod = self._request_page()
                self.served[pod] = self.served.get(pod, 0) + 1
            except (OSError, http.client.HTTPException, ValueError) as exc:
                self.failures.append(f"{time.strftime('%H:%M:%S')} {type(exc).__name__}: {exc}")
            self.slowest_s = max(self.slowest_s, time.monotonic() - started_at)

    def _request_page(self) -> str:
        connection = http.client.HTTPConnection(self._host, 80, timeout=RESPONSE_TIMEOUT_S)
        try:
            connection.request("GET", "/")
            response = connection.getresponse()
            body = response.read().decode()
            if response.status != 200 or body != PAGE:
                raise ValueError(f"{response.status} {body[:80]!r}")
            return response.getheader("Pod", NAME)
        finally:
            connection.close()
