"""What differs by the way a job works: all-reduce training, lease training and lease work. Pure."""
