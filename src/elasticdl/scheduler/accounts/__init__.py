"""What the scheduler knows of each job: its submission, state, usage and measured progress; events in, actions out."""
