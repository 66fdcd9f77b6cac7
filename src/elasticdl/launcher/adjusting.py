"""Changes of a person's own, merged into objects as the last step: what `--cluster_spec` holds."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from elasticdl.launcher.naming import Document, cluster_of
from elasticdl.spec import JobSpec


def adjusted(document: Document, spec: JobSpec, *names: str) -> Document:
    """`document` with the changes under these names, in order. What makes it this job's own stays."""
    changes = [cluster_of(spec).adjust[name] for name in names if name in cluster_of(spec).adjust]
    result = document
    for change in changes:
        result = merged(result, change)
    if changes:
        metadata = result.setdefault("metadata", {})
        ours = document["metadata"]
        metadata |= {key: ours[key] for key in ("name", "namespace", "ownerReferences") if key in ours}
        metadata["labels"] = metadata.get("labels", {}) | ours["labels"]
    return result


def merged(old: Document, change: Document) -> Document:
    """Mappings are merged, lists of named things by name, all else is replaced; null takes a key away."""
    result = deepcopy(old)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result[key], value) if key in result else deepcopy(value)
    return result


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return merged(old, new)
    key = _key_of(old, new)
    if not key:
        return deepcopy(new)
    changes = {item[key]: item for item in new}
    kept = [merged(item, changes.pop(item[key], {})) for item in old]
    return kept + [deepcopy(item) for item in changes.values()]


def _key_of(old: Any, new: Any) -> str:
    """What tells the items of both lists apart: a volume may be mounted twice, so mounts go by their place."""
    if not isinstance(old, list) or not isinstance(new, list) or not old:
        return ""
    for key in ("mountPath", "name"):
        if all(isinstance(item, dict) and key in item for item in (*old, *new)):
            return key
    return ""
