"""Resource limits on single commands."""
