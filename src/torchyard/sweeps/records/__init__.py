"""Rows of trials, and the types that the other folders share."""
