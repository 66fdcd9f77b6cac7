"""Parameter servers: the rows of embedding tables over a native core, their clients, and their snapshots."""
