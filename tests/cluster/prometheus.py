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


def configuration(directory: Path, monitors: list[dict[str, Any]]) -> dict[str, Any]:
    """The configuration that the Prometheus operator makes of ServiceMonitors, with targets in files.

    Debian's Prometheus is built without the discovery of Kubernetes.
    """
    return {
        "global": {"scrape_interval": f"{EVERY_S}s", "scrape_timeout": f"{EVERY_S}s"},
        "scrape_configs": [
            {
                "job_name": monitor["metadata"]["name"],
                "honor_labels": _endpoint(monitor).get("honorLabels", False),
                "file_sd_configs": [{"files": [str(_targets_file(directory, monitor))], "refresh_interval": "5s"}],
            }
            for monitor in monitors
        ],
    }


def discover(kube: Kube, monitors: list[dict[str, Any]], directory: Path) -> None:
    """Writes the targets that the monitors select now: the endpoints of services by label, their port by name."""
    for monitor in monitors:
        labels = monitor["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        slices = kube.get("endpointslices", "--all-namespaces", f"--selector={selector}")["items"]
        targets = [
            f"{address}:{port['port']}"
            for endpoint_slice in slices
            for port in endpoint_slice.get("ports") or []
            if port.get("name") == _endpoint(monitor)["port"]
            for endpoint in endpoint_slice.get("endpoints") or []
            for address in endpoint["addresses"]
        ]
        _targets_file(directory, monitor).write_text(json.dumps([{"targets": targets}]))


def _endpoint(monitor: dict[str, Any]) -> dict[str, Any]:
    (endpoint,) = monitor["spec"]["endpoints"]
    assert isinstance(endpoint, dict)
    return endpoint


def _targets_file(directory: Path, monitor: dict[str, Any]) -> Path:
    return directory / f"{monitor['metadata']['name']}.json"


class Prometheus:
    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        url = f"{self._address}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as exc:
            raise AssertionError(f"{query}: {exc.read().decode()}") from exc

    def values(self, expression: str) -> list[float]:
        """The current value of each series of the expression."""
        series = self.ask("/api/v1/query", query=expression)["data"]["result"]
        return [float(sample["value"][1]) for sample in series]

    @property
    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._address}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def running(kube: Kube, monitors: list[dict[str, Any]], directory: Path) -> Iterator[Prometheus]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration(directory, monitors)))
    discover(kube, monitors, directory)
    checked = subprocess.run(["promtool", "check", "config", str(file)], capture_output=True, text=True, timeout=30)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    argv = [
        "prometheus", f"--config.file={file}", f"--storage.tsdb.path={directory / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (directory / "prometheus.log").open("w") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            prometheus = Prometheus(port)
            deadline = time.monotonic() + READY_S
            while not prometheus.is_ready:
                assert time.monotonic() < deadline and process.poll() is None, (
                    directory / "prometheus.log"
                ).read_text()
                time.sleep(0.2)
            yield prometheus
        finally:
            process.terminate()
            process.wait(20)
