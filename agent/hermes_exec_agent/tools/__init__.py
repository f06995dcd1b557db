"""What a model can ask for, done in one place by one terminal."""
