"""The ps of a job: their life, the slot map and the tasks that change it. Pure."""
