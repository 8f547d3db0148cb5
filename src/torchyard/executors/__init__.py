"""Engines that start an attempt's workers and answer for them."""
