"""Callbacks: early stopping, best checkpoints, summaries and whatever else runs between steps."""
