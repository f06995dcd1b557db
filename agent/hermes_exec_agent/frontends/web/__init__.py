"""The web view: what runs and what happened, in a browser."""
