"""Jobs from Python: describe, check, submit, find, watch, scale and stop them, wherever they run."""
