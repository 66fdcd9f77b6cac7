"""Statistics by SQL: one generator of text, a dialect for each database, and the engines that run it."""
