"""Elastic all-reduce: rounds, a reduction with fixed bits, and state transfer."""
