"""Paths in object stores as if they were local: addresses, retried requests, local copies, and the check before launch."""
