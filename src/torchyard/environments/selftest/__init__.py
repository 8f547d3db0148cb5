"""Tests of curated environments: each component does one real step, each label is compared."""
