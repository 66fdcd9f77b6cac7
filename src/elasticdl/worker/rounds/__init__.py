"""Training in rounds: steps of all-reduce among workers that come and go."""
