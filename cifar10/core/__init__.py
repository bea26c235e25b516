"""Errors, files, options, devices, TensorFlow's import: what every other package uses."""
