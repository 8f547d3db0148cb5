"""Compute: clusters, and the node slots that jobs hold."""
