"""Hosts that are made nodes from here, by the person's own ssh."""
