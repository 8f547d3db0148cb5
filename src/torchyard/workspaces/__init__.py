"""Workspaces: the room of people, their tokens, and what they share."""
