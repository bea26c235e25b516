"""The options of the command line and of the Python API, each declared once."""
