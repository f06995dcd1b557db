"""Outcomes of tasks and the audits that are made from them, and the upkeep of the skills that the agent wrote."""
