"""MLflow's REST API over torchyard's own runs.

A second set of routes: it translates between MLflow's words and torchyard's, and stores nothing.
`routes.router`, which the app mounts, is imported when the first request for one of `PATHS` comes.
"""

PATHS = ("/api", "/ajax-api", "/get-artifact", "/model-versions", "//model-versions", "/version")
"""What the routes here are below; all of them are below `/mlflow/{workspace}`, too."""
