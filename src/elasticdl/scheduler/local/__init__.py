"""The scheduler of this machine: a queue of files, a server, and an executor that starts, resizes and suspends jobs."""
