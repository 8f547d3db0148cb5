"""Rows of validations, releases, their schedules and advisories."""
