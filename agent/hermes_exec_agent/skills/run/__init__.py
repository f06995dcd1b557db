"""Runs of registered skills, each in a sandbox of its own."""
