"""What people do inside a running job: shells, and the services beside its ranks."""
