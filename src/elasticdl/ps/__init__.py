"""Parameter servers: tables over the native core, slots, the wire, server and client."""
