"""Exports a trained network as a SavedModel, an ONNX file or a Keras file."""
