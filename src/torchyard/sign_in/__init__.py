"""Signing in with an OpenID Connect provider, beside tokens."""
