"""Parts of `yard compute` beside clusters."""
