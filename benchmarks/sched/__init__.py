"""Parts of the benchmark of schedulers."""
