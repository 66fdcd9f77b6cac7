"""The process of the master: its loop, journal, service and metrics."""
