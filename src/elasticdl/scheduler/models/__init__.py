"""Models of how fast jobs run, fitted to what was measured; each is usable alone."""
