"""The routes of batch endpoints."""
