"""Creating sweeps, and the rounds that keep them going."""
