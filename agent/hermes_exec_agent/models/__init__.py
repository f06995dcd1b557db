"""Models behind one small protocol, so that the loop cannot tell an endpoint from a script."""
