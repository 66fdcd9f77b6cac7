"""The native core of features: vocabularies and fingerprints. PermanentError at import where it is not built."""

from elasticdl.errors import PermanentError
from elasticdl.extras import reinstall_command

try:
    from elasticdl.features._native import VocabularyIndex, fingerprints
except ImportError as exc:
    raise PermanentError(
        f"Hashing, IndexLookup and Cross need the native core of features, which cannot be loaded: {exc}. "
        f"Install a C++17 compiler and ElasticDL again: {reinstall_command()}"
    ) from exc

__all__ = ["VocabularyIndex", "fingerprints"]
