"""What `elasticdl zoo init` copies."""
