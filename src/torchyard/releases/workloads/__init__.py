"""What validation jobs run: copied into them, never imported by the server."""
