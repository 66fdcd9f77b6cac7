"""Every ElasticJob in documents and examples is taken by a real API server and is a job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.kube.api import Api
from elasticdl.spec.load import resolve_elastic_job
from tests.integration.kube.elastic_job import install, resource

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "kubernetes-operator.md"
EXAMPLE = ROOT / "examples" / "07-kubernetes" / "job.yaml"


def shown() -> list[dict[str, Any]]:
    """The example, and all YAML of the guide: a part of a spec is put into a whole one."""
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.+?)```", GUIDE.read_text(), re.DOTALL)]
    return [yaml.safe_load(EXAMPLE.read_text())] + [
        block if "kind" in block else resource("part", **block) for block in blocks
    ]


@pytest.mark.parametrize("document", shown(), ids=lambda document: str(document["metadata"]["name"]))
def test_a_job_that_is_shown_is_one(api: Api, namespace: str, document: dict[str, Any]) -> None:
    install(api)
    metadata = {"name": document["metadata"]["name"], "namespace": namespace}

    taken = api.create({**document, "metadata": metadata})

    job = resolve_elastic_job(taken)
    assert job.cluster is not None and job.cluster.namespace == namespace
    assert job == resolve_elastic_job({**document, "metadata": metadata})  # nothing was pruned
