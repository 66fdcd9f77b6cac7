"""Object stores as places: addresses, retried requests, local copies, and the check before launch."""
