"""The builder of skills: from a task that no tool fits to a version that passed the gate, or to a clear refusal."""
