"""Verbs of `yard environment`: validate, audit, release, export, copy, open a shell."""
