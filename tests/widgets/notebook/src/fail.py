"""A training script that was given something wrong."""

raise ValueError("the learning rate is 0")
