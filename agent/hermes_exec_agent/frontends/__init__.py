"""Frontends of the agent: a terminal and HTTP."""
