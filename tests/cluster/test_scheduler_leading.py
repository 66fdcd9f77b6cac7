"""Several schedulers of one namespace: only the leader decides. Needs no operator: decisions are read, no pod runs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from elasticdl.scheduler.kubernetes.annotations import SCHEDULING_REASON
from tests.cluster import host_operator
from tests.cluster.elastic_job import ElasticJob
from tests.cluster.kube import ROOT, SLOT, Kube
from tests.cluster.scheduler import NAME, Scheduler, account, objects
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAMESPACE = "leading-suite"
Start = Callable[[str], Scheduler]


@pytest.fixture
def alone(kube: Kube) -> Iterator[Kube]:
    """A namespace, and the definition of ElasticJob."""
    kube.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(ROOT / "deploy" / "crd"))
    kube.wait_for_definition()
    kube.open_namespace(NAMESPACE)
    yield kube
    kube.kubectl("delete", "namespace", NAMESPACE, "--timeout=100s")


@pytest.fixture
def start(alone: Kube, tmp_path: Path) -> Iterator[Start]:
    schedulers: list[Scheduler] = []
    with account(alone, NAMESPACE, tmp_path) as kubeconfig:

        def launch(name: str) -> Scheduler:
            schedulers.append(Scheduler(alone, NAMESPACE, kubeconfig, tmp_path / f"{name}.log"))
            return schedulers[-1]

        yield launch
        for scheduler in schedulers:
            scheduler.end(signal.SIGKILL)
            print(scheduler.log_text)


def submit(kube: Kube, name: str, directory: Path) -> None:
    document = ElasticJob(kube, name, directory, NAMESPACE).document(1)
    document["spec"]["cluster"]["worker"] = {"requests": {"cpu": "50m", SLOT: "1"}}
    kube.kubectl("apply", "--filename=-", text=json.dumps(document))


def reason(kube: Kube, name: str) -> str:
    resource = kube.get("elasticjob", name, f"--namespace={NAMESPACE}")
    return str(resource["metadata"].get("annotations", {}).get(SCHEDULING_REASON, ""))


def holder(kube: Kube) -> str:
    out = kube.kubectl("get", "lease", NAME, f"--namespace={NAMESPACE}", "--output=json", check=False)
    return str(json.loads(out)["spec"]["holderIdentity"]) if out.strip() else ""


def test_a_second_scheduler_decides_only_when_the_first_has_ended(alone: Kube, start: Start, tmp_path: Path) -> None:
    first = start("first")
    until("the first leads", lambda: holder(alone).endswith(first.me))
    second = start("second")
    until("the second says that it waits", lambda: "is the leader; waiting until it ends" in second.log_text)
    submit(alone, "one", tmp_path)
    until("the first has decided", lambda: reason(alone, "one"))
    assert f"{NAMESPACE}/one: 4 workers" in first.log_text
    assert f"{NAMESPACE}/one" not in second.log_text

    first.end(signal.SIGKILL)
    submit(alone, "two", tmp_path)
    until("the second has decided", lambda: reason(alone, "two"))
    assert holder(alone).endswith(second.me)
    assert f"{NAMESPACE}/two" in second.log_text

    third = start("third")
    until("the third says that it waits", lambda: "is the leader; waiting until it ends" in third.log_text)
    assert second.end(signal.SIGTERM) == 0
    began = time.monotonic()
    until("the third leads", lambda: holder(alone).endswith(third.me))
    assert time.monotonic() - began < 10.0, "who ends in order does not let others wait for the Lease to run out"
    assert third.end(signal.SIGINT) == 0 and holder(alone) == ""
    assert "orbidden" not in first.log_text + second.log_text + third.log_text


def test_a_scheduler_that_cannot_renew_its_lease_writes_nothing(alone: Kube, start: Start, tmp_path: Path) -> None:
    first = start("first")
    until("the first leads", lambda: holder(alone).endswith(first.me))
    first.process.send_signal(signal.SIGSTOP)
    second = start("second")
    until("the second leads", lambda: holder(alone).endswith(second.me))

    first.process.send_signal(signal.SIGCONT)
    until("the first sees it", lambda: "is no longer the leader" in first.log_text)
    submit(alone, "one", tmp_path)
    until("a decision is made", lambda: reason(alone, "one"))

    assert f"{NAMESPACE}/one" in second.log_text and f"{NAMESPACE}/one" not in first.log_text


def test_the_printed_deployment_decides_with_the_printed_rights(alone: Kube, tmp_path: Path) -> None:
    text = yaml.safe_dump_all([host_operator.with_host_image(resource) for resource in objects(alone, NAMESPACE)])
    alone.kubectl("apply", "--filename=-", text=text)
    try:
        here = (f"deployment/{NAME}", f"--namespace={NAMESPACE}")
        alone.kubectl("rollout", "status", *here, "--timeout=100s")
        submit(alone, "one", tmp_path)
        until("a decision is made", lambda: reason(alone, "one"), 120.0)
        decided = f"{NAMESPACE}/one: 4 workers"
        until("its log tells of the decision", lambda: decided in alone.kubectl("logs", *here))
        assert "orbidden" not in alone.kubectl("logs", *here)
        assert holder(alone).startswith(f"{NAME}-"), "the name of its pod"
    finally:
        alone.kubectl("delete", "--filename=-", "--ignore-not-found", text=text)
