"""Slurm: the engine of labs; opened when a cluster first uses it."""
