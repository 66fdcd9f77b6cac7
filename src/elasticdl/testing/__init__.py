"""Fault injection and fakes for tests, ours and yours."""
