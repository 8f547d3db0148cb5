"""The files of endpoints and deployments, key by key."""
