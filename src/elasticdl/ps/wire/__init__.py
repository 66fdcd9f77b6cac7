"""The protocol between workers and ps: messages, connections, authentication, shared memory."""
