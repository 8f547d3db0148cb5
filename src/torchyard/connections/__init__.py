"""Connections of a workspace: addresses of other services, with the credentials for each."""
