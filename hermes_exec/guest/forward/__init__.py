"""Forwarded connections and listeners."""
