"""What jobs are expected to do: models fitted to what was measured of them, each usable alone."""
