"""Routes of sweeps."""
