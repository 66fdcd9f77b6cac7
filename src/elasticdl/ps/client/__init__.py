"""A worker's side of the ps: lookups, pulls and pushes, and the same tables without any ps."""
