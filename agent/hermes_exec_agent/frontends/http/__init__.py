"""The agent over HTTP, in the form of OpenAI's chat completions."""
