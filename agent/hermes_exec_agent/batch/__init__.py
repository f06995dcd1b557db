"""Batches: many trials of the agent at once, with a folder as their only state.

A *task* is an instruction and a check. A *trial* is a task on a target with a model, settings and a sample number. An
*attempt* is one try at a trial, and a *shard* is one process that runs many attempts on one event loop.
"""
