"""Our own policy: the most goodput for all jobs together, by a multiple-choice knapsack over a few sizes of each."""
