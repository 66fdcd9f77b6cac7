"""Parameter servers: tables over the native core, slots, the wire, server and client."""

from elasticdl.errors import PermanentError

try:
    from elasticdl.ps import _native as _native
except ImportError as exc:  # built with the package, where there was a C++ compiler
    raise PermanentError(
        "parameter servers need the native core, which was not built: install a C++ compiler (g++) and install again"
    ) from exc
