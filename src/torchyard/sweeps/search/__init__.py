"""Which values the next trial gets."""
