"""A simulator of the scheduler, driven by traces: the same loop and policies with a simulated clock and cluster."""
