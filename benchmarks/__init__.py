"""Benchmarks: hermes_exec beside the physical floor and its peers, in one run."""
