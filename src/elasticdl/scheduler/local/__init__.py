"""The scheduler of this machine: a queue of files, a pure book, hands that start, scale and suspend jobs."""
