"""Embedders, which turn texts into vectors, and rankings by meaning."""
