"""Every panel of the dashboard has data: a real Prometheus, a real job with ps, the operator."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import operator, prometheus
from tests.cluster.elastic_job import SMALL, ElasticJob
from tests.cluster.kube import ROOT, Kube

REASON = prometheus.why_not() or operator.why_not()
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.skipif(bool(REASON), reason=REASON)]

NAMESPACE = "metrics-suite"
PATIENCE_S = 90.0


def expressions() -> list[tuple[str, str]]:
    """(panel, expression) of the dashboard, for all jobs."""
    board = json.loads((ROOT / "deploy" / "grafana" / "elasticdl.json").read_text())
    panels = [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", []))]
    panel_expressions = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]
    return [(title, expression.replace("$job", ".*")) for title, expression in panel_expressions]


def monitors(kube: Kube) -> list[dict[str, Any]]:
    """The ServiceMonitors as the chart writes them."""
    done = subprocess.run(
        ["helm", "template", "elasticdl", str(ROOT / "deploy" / "chart"), "--set=serviceMonitor.enabled=true",
         "--api-versions=monitoring.coreos.com/v1"],
        env=kube.environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [
        resource for resource in yaml.safe_load_all(done.stdout) if resource and resource["kind"] == "ServiceMonitor"
    ]


@pytest.fixture(scope="module")
def installed(kube: Kube) -> Iterator[Kube]:
    with operator.serving(kube, NAMESPACE) as cluster:
        yield cluster


def test_every_expression_of_the_dashboard_gives_data_while_a_job_with_ps_runs(installed: Kube, tmp_path: Path) -> None:
    job = ElasticJob(installed, "measured", tmp_path, NAMESPACE)
    cluster = job.document(1)["spec"]["cluster"] | {"ps": SMALL}
    job.apply(
        1, slow=True, cluster=cluster, ps={"replicas": 1, "embeddings": "all"},
        data={"training": "made-up", "validation": "made-up", "format": "python"}, evaluation={"every_steps": 2},
        model={
            "zoo": str(ROOT / "tests" / "integration"), "definition": "counting.forward",
            "params": {"slow": str(job.slow), "pause_s": 0.2},
        },
    )  # fmt: skip
    service_monitors = monitors(installed)
    assert {monitor["metadata"]["name"] for monitor in service_monitors} == {"elasticdl-jobs", "elasticdl-operator"}

    job.wait_members(1, step=2)
    numbers = count()
    with prometheus.running(installed, service_monitors, tmp_path) as server:
        for panel, expression in expressions():

            def has_data(expression: str = expression) -> bool:
                # An operator that nothing happens to does not look: there would be nothing to take the time of.
                change = json.dumps({"spec": {"plan": {"epochs": 1000 + next(numbers)}}})  # which no job follows
                job.kubectl("patch", f"elasticjob/{job.name}", "--type=merge", f"--patch={change}")
                values = server.values(expression)
                return bool(values) and not all(map(math.isnan, values))

            job.wait(has_data, f"data of {panel!r}: {expression}", PATIENCE_S)
        assert server.values('elasticdl_desired_workers{job="measured"}') == [1.0], "the job's own label stands"
        assert server.values("sum(elasticdl_operator_is_leader)") == [1.0]
    job.hurry()
    job.wait_phase("Succeeded")
    job.delete()
