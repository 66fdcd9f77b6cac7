"""Paths in object stores as if they were local: addresses, retries, local copies, and the check before launch."""
