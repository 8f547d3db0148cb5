"""Requirements, locks, Pythons and package indexes, by uv."""
