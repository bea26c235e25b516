"""Errors, files, options, devices and TensorFlow's import, for all other packages."""
