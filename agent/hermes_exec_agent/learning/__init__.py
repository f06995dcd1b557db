"""Outcomes of tasks, and the audits that are made from them."""
