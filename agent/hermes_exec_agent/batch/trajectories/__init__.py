"""Trajectories of trials, in the forms that graders and trainers read."""
