"""The pipeline file, and the graph of steps that it is."""
