"""One module for each form that a policy is rendered to."""
