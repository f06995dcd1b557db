"""The agent: skills, the gate that they pass, and what it remembers."""
