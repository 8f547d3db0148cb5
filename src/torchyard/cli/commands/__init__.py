"""One module for each noun of `yard`."""
