"""Readers of file formats and of Python datasets; each gives a source of numbered records."""
