"""Formats of tasks besides our own: folders of Harbor, and rows of SWE-bench."""
