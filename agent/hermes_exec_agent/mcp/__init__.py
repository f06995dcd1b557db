"""The Model Context Protocol: a terminal as a server's tools, and the tools of other servers for the agent."""
