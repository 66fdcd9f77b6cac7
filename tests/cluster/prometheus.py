"""A real Prometheus beside the cluster, which scrapes what our ServiceMonitors name: masters and the operator."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.kube import Kube

EVERY_S = 1
READY_S = 30.0


def why_not() -> str:
    return "" if shutil.which("prometheus") else "prometheus is not installed"


def configuration(kubeconfig: str, monitors: list[dict[str, Any]]) -> dict[str, Any]:
    """What Prometheus's operator makes of ServiceMonitors: services by label, their endpoints by the port's name."""
    return {
        "global": {"scrape_interval": f"{EVERY_S}s", "scrape_timeout": f"{EVERY_S}s"},
        "scrape_configs": [_scraping(kubeconfig, monitor) for monitor in monitors],
    }


def _scraping(kubeconfig: str, monitor: dict[str, Any]) -> dict[str, Any]:
    (endpoint,) = monitor["spec"]["endpoints"]
    labels = {
        f"__meta_kubernetes_service_label_{name.translate(str.maketrans('./-', '___'))}": value
        for name, value in monitor["spec"]["selector"]["matchLabels"].items()
    }
    kept = labels | {"__meta_kubernetes_endpoint_port_name": endpoint["port"]}
    return {
        "job_name": monitor["metadata"]["name"],
        "honor_labels": endpoint.get("honorLabels", False),
        "kubernetes_sd_configs": [{"role": "endpoints", "kubeconfig_file": kubeconfig}],
        "relabel_configs": [
            {"source_labels": [name], "regex": value, "action": "keep"} for name, value in kept.items()
        ],
    }


class Prometheus:
    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        asked = f"{self._address}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as exc:
            raise AssertionError(f"{query}: {exc.read().decode()}") from exc

    def values(self, expression: str) -> list[float]:
        """Those of every series that the expression has now."""
        found = self.ask("/api/v1/query", query=expression)["data"]["result"]
        return [float(one["value"][1]) for one in found]

    @property
    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._address}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def running(kube: Kube, monitors: list[dict[str, Any]], place: Path) -> Iterator[Prometheus]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    file = place / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration(kube.environ["KUBECONFIG"], monitors)))
    subprocess.run(["promtool", "check", "config", str(file)], check=True, capture_output=True, timeout=30)
    argv = [
        "prometheus", f"--config.file={file}", f"--storage.tsdb.path={place / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (place / "prometheus.log").open("w") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            found = Prometheus(port)
            deadline = time.monotonic() + READY_S
            while not found.is_ready:
                assert time.monotonic() < deadline and process.poll() is None, (place / "prometheus.log").read_text()
                time.sleep(0.2)
            yield found
        finally:
            process.terminate()
            process.wait(20)
