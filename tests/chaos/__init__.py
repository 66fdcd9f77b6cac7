"""Chaos: jobs under faults of all kinds, a campaign of them at a time; docs/design/0038-fuzzing-and-chaos.md."""
