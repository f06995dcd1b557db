"""The objects that callers use: terminals, sessions, streams, jobs, PTYs and forwarded ports."""
