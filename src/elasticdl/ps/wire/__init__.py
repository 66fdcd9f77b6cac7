"""What workers and ps say to each other, and how it travels: messages, connections, authentication, shared memory."""
