"""The convergence experiment: fixed and elastic workers reach the same AUC."""
