"""Lists installed distributions as a CycloneDX document: `python -m elasticdl.image.sbom DIRECTORY… > sbom.cdx.json`.

It has the name, version, licence and dependencies of every distribution below the directories, and the digest of its
RECORD, which has the digest of each of its files. The same files give the same document: it has no time and no random
serial number.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

SbomDocument = dict[str, Any]

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"


def describe_distributions(installed: Iterable[Distribution], name: str, version: str) -> SbomDocument:
    """The document of `installed` distributions, which make up the product `name`."""
    by_url = {
        package_url(distribution.metadata["Name"], distribution.version): distribution for distribution in installed
    }
    references = {normalize_name(distribution.metadata["Name"]): url for url, distribution in by_url.items()}
    components = [_describe_component(url, distribution) for url, distribution in sorted(by_url.items())]
    dependencies = [
        {"ref": url, "dependsOn": _dependencies(distribution, references)}
        for url, distribution in sorted(by_url.items())
    ]
    return _make_document("container", f"pkg:generic/{name}@{version}", name, version, components, dependencies)


def describe_lock(text: str, name: str, version: str) -> SbomDocument:
    """The document of the package `name` and its requirements in a lock file, which has their hashes."""
    components = []
    for entry in re.split(r"(?<!\\)\n", text):
        if match := re.match(r"([\w.-]+)==([\w.]+)", entry):
            ref, hashes = package_url(match[1], match[2]), re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
            component = {"type": "library", "bom-ref": ref, "name": match[1], "version": match[2], "purl": ref}
            components.append(
                component | {"hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(hashes)]}
            )
    return _make_document("library", package_url(name, version), name, version, components, [])


def _make_document(
    kind: str, subject: str, name: str, version: str, components: list[SbomDocument], dependencies: list[SbomDocument]
) -> SbomDocument:
    digest = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).hexdigest()
    return {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{subject}#{digest}')}",
        "version": 1,
        "metadata": {"component": {"type": kind, "bom-ref": subject, "name": name, "version": version}},
        "components": components,
        "dependencies": [
            {"ref": subject, "dependsOn": sorted(component["bom-ref"] for component in components)},
            *dependencies,
        ],
    }


def package_url(name: str, version: str) -> str:
    """The package URL. It includes a local version (+cpu), which is another build."""
    return f"pkg:pypi/{normalize_name(name)}@{version.replace('+', '%2B')}"


def normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _describe_component(ref: str, distribution: Distribution) -> SbomDocument:
    component: SbomDocument = {
        "type": "library",
        "bom-ref": ref,
        "name": distribution.metadata["Name"],
        "version": distribution.version,
        "purl": ref,
    }
    if record := distribution.read_text("RECORD"):
        digest = hashlib.sha256(record.encode()).hexdigest()
        component["properties"] = [{"name": "elasticdl:record-sha256", "value": digest}]
    if licence := _read_licence(distribution):
        component["licenses"] = [licence]
    return component


def _read_licence(distribution: Distribution) -> SbomDocument | None:
    if "License-Expression" in distribution.metadata:
        return {"expression": distribution.metadata["License-Expression"]}
    classifiers = [line for line in distribution.metadata.get_all("Classifier") or () if line.startswith("License :: ")]
    name = classifiers[0].rpartition(" :: ")[2] if classifiers else _first_value(distribution, "License")
    return {"license": {"name": name.splitlines()[0][:200]}} if name else None


def _first_value(distribution: Distribution, field: str) -> str:
    return str(next(iter(distribution.metadata.get_all(field) or [""]))).strip()


def _dependencies(distribution: Distribution, references: dict[str, str]) -> list[str]:
    """The dependencies that are installed, which leaves out unused extras and other systems."""
    names = [re.match(r"[A-Za-z0-9._-]+", line) for line in distribution.requires or ()]
    return sorted(
        {references[normalize_name(match[0])] for match in names if match and normalize_name(match[0]) in references}
    )


def find_distributions(directories: Iterable[Path]) -> list[Distribution]:
    paths = [str(path) for directory in directories for path in directory.rglob("site-packages")]
    return list(distributions(path=paths))


def main(arguments: list[str]) -> int:
    installed = find_distributions(Path(argument) for argument in arguments)
    versions = [
        distribution.version
        for distribution in installed
        if normalize_name(distribution.metadata["Name"]) == "elasticdl"
    ]
    if not versions:
        print(f"elasticdl is not installed below {', '.join(arguments) or 'no directory'}", file=sys.stderr)
        return 2
    json.dump(describe_distributions(installed, "elasticdl", versions[0]), sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
