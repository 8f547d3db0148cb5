"""The files of batch endpoints, their deployments and invocations, key by key."""
