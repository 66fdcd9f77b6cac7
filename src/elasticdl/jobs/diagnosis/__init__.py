"""Checks of an installation and of a cluster, each with a fix."""
