"""Models: what was registered, version by version."""
