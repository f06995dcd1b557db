"""Output and input streams of commands, between file descriptors and the link."""
