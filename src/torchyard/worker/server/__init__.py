"""The worker's connection to the server: reports, events, control messages."""
