"""Skills: what passed the gate is kept so that no change goes unseen, and runs under what it was proven with."""
