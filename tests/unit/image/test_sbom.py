"""The packages in the image, and the requirements of a wheel, as CycloneDX."""

from __future__ import annotations

from pathlib import Path

from elasticdl.image import sbom

RECIPE = Path(sbom.__file__).parent / "recipe"
METADATA = """Metadata-Version: 2.4
Name: {name}
Version: {version}
License-Expression: MIT
Requires-Dist: Needed.Thing>=1
Requires-Dist: absent; extra == "more"
"""


def install(root: Path, name: str, version: str) -> None:
    directory = root / "lib" / "site-packages" / f"{name}-{version}.dist-info"
    directory.mkdir(parents=True)
    (directory / "METADATA").write_text(METADATA.format(name=name, version=version))
    (directory / "RECORD").write_text(f"{name}.py,sha256=x,1\n")


def test_every_package_is_named_with_version_licence_and_needs(tmp_path: Path) -> None:
    install(tmp_path, "elasticdl", "1.2")
    install(tmp_path, "needed_thing", "3.0+cpu")

    document = sbom.describe_distributions(sbom.find_distributions([tmp_path]), "elasticdl", "1.2")

    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    ours, needed = document["components"]
    assert needed["purl"] == "pkg:pypi/needed-thing@3.0%2Bcpu" and needed["version"] == "3.0+cpu"
    assert ours["licenses"] == [{"expression": "MIT"}] and len(ours["properties"][0]["value"]) == 64
    assert {"ref": "pkg:pypi/elasticdl@1.2", "dependsOn": [needed["purl"]]} in document["dependencies"]


def test_the_same_files_give_the_same_document(tmp_path: Path) -> None:
    install(tmp_path, "elasticdl", "1.2")

    first, second = (
        sbom.describe_distributions(sbom.find_distributions([tmp_path]), "elasticdl", "1.2") for _ in range(2)
    )
    install(tmp_path, "another", "1")

    assert first == second
    assert (
        sbom.describe_distributions(sbom.find_distributions([tmp_path]), "elasticdl", "1.2")["serialNumber"]
        != first["serialNumber"]
    )


def test_a_wheel_needs_what_is_locked_with_its_hashes() -> None:
    document = sbom.describe_lock((RECIPE / "requirements" / "always.txt").read_text(), "elasticdl", "1.2")

    by_name = {component["name"]: component for component in document["components"]}
    assert {"numpy", "protobuf", "pydantic", "pyyaml"} <= set(by_name)
    assert all(len(digest["content"]) == 64 for component in by_name.values() for digest in component["hashes"])
    assert all(component["hashes"] for component in by_name.values())
