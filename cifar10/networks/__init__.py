"""Families of networks."""
