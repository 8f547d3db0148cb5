"""What a step is made of: whether it ran before, and why not."""
