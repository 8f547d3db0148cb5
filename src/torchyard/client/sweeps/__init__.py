"""Sweeps in the SDK: their files, their trials."""
