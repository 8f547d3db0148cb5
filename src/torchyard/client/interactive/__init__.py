"""Into a running job, over HTTP: shells and services."""
