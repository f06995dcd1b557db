"""Render a policy to the settings of each mechanism, one module for each form."""
