"""The strategies of a job: all-reduce training, training by scripts, lease training and lease work. Pure."""
