"""The HTTP application: routes of every package, request guard, error responses, listeners."""
