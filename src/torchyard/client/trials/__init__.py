"""What the SDK reads and writes of sweeps: their files, their trials."""
