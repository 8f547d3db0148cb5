"""Sweeps in the SDK: submit them, let them go on, read their trials."""
