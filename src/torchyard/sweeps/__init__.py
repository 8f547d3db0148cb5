"""Sweeps: the search for the best hyperparameters of a job, trial by trial."""
