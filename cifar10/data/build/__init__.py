"""Converts archives and image folders to record files; only the generator uses this package."""
