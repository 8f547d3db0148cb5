"""What every Azure ML protocol shares: paths, requests, errors, names of containers."""
