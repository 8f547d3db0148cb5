"""`yard compute`: clusters, their nodes, instances."""
