"""Configuration: profiles, one-line targets, layered files, trust and secrets."""
