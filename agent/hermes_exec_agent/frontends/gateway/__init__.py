"""The gateway: persons reach the agent from messengers, each with one conversation over all of them."""
