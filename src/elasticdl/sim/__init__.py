"""The scheduler under another clock and on another cluster: a simulator driven by traces."""
