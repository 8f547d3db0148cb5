"""Code, inputs, outputs, logs and the thin environment of a node."""
