"""Snapshots of all rows at once: how the ps copy and write them, their files, and tables exported from them."""
