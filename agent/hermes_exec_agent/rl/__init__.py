"""Training by reinforcement: groups of scored trials for a trainer, and the server of the model that is trained."""
