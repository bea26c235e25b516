"""Inference: predictions of a trained network, and test-time augmentation."""
