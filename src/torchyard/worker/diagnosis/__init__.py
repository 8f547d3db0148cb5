"""Why ranks fail or hang; diagnosis.py is where a dead rank is diagnosed."""
