"""The state machine of a job: events in, actions out. Pure."""
