"""What ``./dev`` does, with the standard library alone: it runs before anything is installed."""
