"""What the scheduler knows of each job: submission, state, usage and measured progress; events in, actions out."""
