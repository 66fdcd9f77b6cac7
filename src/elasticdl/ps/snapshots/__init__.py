"""Snapshots of all rows at once: how the ps copy and write them, the files they lie in, and tables exported from them."""
