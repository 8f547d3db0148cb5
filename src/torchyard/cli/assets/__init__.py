"""Verbs that every noun of a registered thing has: list, show, archive, delete."""
