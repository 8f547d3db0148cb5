"""Servers that share one home: who lives, and who looks after what."""
