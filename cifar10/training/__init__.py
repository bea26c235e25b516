"""Gradients, updates, model function, jobs."""
