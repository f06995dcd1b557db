"""Policies: one definition, rendered to each mechanism that enforces it."""
