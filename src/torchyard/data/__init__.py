"""Data: snapshots that arrive, and the datastores that jobs' files live in."""
