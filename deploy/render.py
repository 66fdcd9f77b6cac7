"""Writes what in deploy/ is made of something else: `python deploy/render.py` after a change of JobSpec or chart.

crd/elasticjobs.yaml and its copy in the chart are the schema of the JobSpec; the chart's dashboard is a copy of
grafana/elasticdl.json; the plain manifests are the chart with its default values, without Helm's labels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from elasticdl.operator import schema

DEPLOY = Path(__file__).parent
NAMESPACE = "elasticdl"
HELM_ONLY = ("helm.sh/chart:", "app.kubernetes.io/managed-by:")
# Which templates become plain manifests; monitors need Prometheus's operator, the dashboard Grafana.
TEMPLATES = ("operator", "rights", "policies", "priorities", "submitter")


def helm() -> str:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    return shutil.which("helm", path=f"{assets}:{os.environ['PATH']}") or sys.exit("no helm: set KUBEBUILDER_ASSETS")


def plain(template: str) -> str:
    """A template as Helm renders it, without what only Helm needs."""
    argv = [helm(), "template", "elasticdl", str(DEPLOY / "chart"), "--namespace", NAMESPACE]
    done = subprocess.run(
        [*argv, "--show-only", f"templates/{template}.yaml"], check=True, capture_output=True, text=True
    )
    lines = [line for line in done.stdout.splitlines() if not line.strip().startswith(HELM_ONLY)]
    lines = [line for line in lines if not line.startswith("# Source: ")]
    return "\n".join(lines).strip().removeprefix("---\n") + "\n"


def files() -> dict[str, str]:
    """Every file that is made, by its path in deploy/."""
    definition = schema.crd_yaml()
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["namespace.yaml", "elasticjobs.yaml", *(f"{template}.yaml" for template in TEMPLATES)],
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return {
        "crd/elasticjobs.yaml": definition,
        "chart/files/elasticjobs.yaml": definition,
        "chart/files/elasticdl.json": (DEPLOY / "grafana" / "elasticdl.json").read_text(),
        "manifests/elasticjobs.yaml": definition,
        "manifests/namespace.yaml": yaml.safe_dump(namespace, sort_keys=False),
        "manifests/kustomization.yaml": yaml.safe_dump(kustomization, sort_keys=False),
    } | {f"manifests/{template}.yaml": plain(template) for template in TEMPLATES}


if __name__ == "__main__":
    shutil.copy(DEPLOY / "grafana" / "elasticdl.json", DEPLOY / "chart" / "files")
    (DEPLOY / "chart" / "files" / "elasticjobs.yaml").write_text(schema.crd_yaml())
    for path, text in files().items():
        (DEPLOY / path).write_text(text)
