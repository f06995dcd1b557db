"""The agent's face at a terminal: interactive, for one question, and as views of what was said before."""
