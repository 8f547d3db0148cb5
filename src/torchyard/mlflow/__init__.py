"""MLflow's REST API over torchyard's own runs.

A second set of routes: it translates between MLflow's words and torchyard's, and stores nothing.
`routes.router` is imported when the first request for one of its paths comes.
"""
