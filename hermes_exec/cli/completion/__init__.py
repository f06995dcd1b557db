"""Completion in bash, zsh and fish: the scripts for these shells, and the answers to their questions."""
