"""Statistics by SQL: one query generator, a dialect for each database, and the engines that run the queries."""
