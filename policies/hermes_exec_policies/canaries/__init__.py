"""Attempts to break every rule of a policy, made in a twin of the sandbox, and a judge outside of it."""
