"""Policies: one source for every mechanism that enforces them."""
