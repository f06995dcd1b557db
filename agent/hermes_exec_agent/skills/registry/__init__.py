"""The registry of skills: a signed, append-only log and the files of each version."""
