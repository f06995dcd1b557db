"""The chat with the agent at a terminal: interactive, for one question, and as views of past conversations."""
