"""MLflow's REST API over torchyard's own runs.

A second set of routes: it translates, and keeps nothing. `routes.router` is what server.py mounts.
"""
