"""Every ElasticJob in documents and examples is valid, for a real API server too."""

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


def documented_jobs() -> list[dict[str, Any]]:
    """The example and all YAML of the guide; a part of a spec is completed."""
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.+?)```", GUIDE.read_text(), re.DOTALL)]
    return [yaml.safe_load(EXAMPLE.read_text())] + [
        block if "kind" in block else resource("part", **block) for block in blocks
    ]


@pytest.mark.parametrize("document", documented_jobs(), ids=lambda document: str(document["metadata"]["name"]))
def test_a_documented_job_is_valid(api: Api, namespace: str, document: dict[str, Any]) -> None:
    install(api)
    metadata = {"name": document["metadata"]["name"], "namespace": namespace}

    created = api.create({**document, "metadata": metadata})

    job = resolve_elastic_job(created)
    assert job.cluster is not None and job.cluster.namespace == namespace
    assert job == resolve_elastic_job({**document, "metadata": metadata})  # nothing was pruned
