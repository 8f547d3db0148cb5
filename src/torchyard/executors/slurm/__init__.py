"""Slurm: the engine of labs; imported when a cluster first uses it."""
