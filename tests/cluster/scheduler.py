"""`elasticdl scheduler --on kubernetes` as a process with exactly the rights that `--yaml` prints."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.kube import HOST_IMAGE, ROOT, SLOT, Kube

NAME = "elasticdl-scheduler"


def objects(kube: Kube, namespace: str) -> list[dict[str, Any]]:
    """The objects that users pipe into `kubectl apply`."""
    printed = kube.elasticdl(
        "scheduler", "--on=kubernetes", f"--namespace={namespace}", f"--device={SLOT}",
        f"--image_name={HOST_IMAGE}", "--yaml",
    )  # fmt: skip
    return list(yaml.safe_load_all(printed.stdout))


@contextmanager
def account(kube: Kube, namespace: str, directory: Path) -> Iterator[Path]:
    """Creates its ServiceAccount and rights. Yields a kubeconfig with the token of the account."""
    documents = [document for document in objects(kube, namespace) if document["kind"] != "Deployment"]
    text = yaml.safe_dump_all(documents)
    kube.kubectl("apply", "--filename=-", text=text)
    try:
        token = kube.kubectl("create", "token", NAME, f"--namespace={namespace}", "--duration=1h").strip()
        config = json.loads(kube.kubectl("config", "view", "--raw", "--minify", "--output=json"))
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        path = directory / "scheduler-kubeconfig"
        path.touch(0o600)
        path.write_text(json.dumps(config))
        yield path
    finally:
        kube.kubectl("delete", "--filename=-", "--ignore-not-found", text=text)


class Scheduler:
    """A scheduler as a process."""

    def __init__(self, kube: Kube, namespace: str, kubeconfig: Path, log: Path) -> None:
        self.log = log
        argv = [sys.executable, "-m", "elasticdl.cli", "scheduler", "--on=kubernetes", f"--namespace={namespace}"]
        environ = {**kube.environ, "PYTHONPATH": str(ROOT / "src"), "KUBECONFIG": str(kubeconfig)}
        with log.open("wb") as output:
            self.process = subprocess.Popen([*argv, f"--device={SLOT}"], env=environ, stdout=output, stderr=output)

    @property
    def log_text(self) -> str:
        return self.log.read_text()

    @property
    def me(self) -> str:
        """The end of its identity as the holder of a Lease."""
        return f"-{self.process.pid}"

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(30)
