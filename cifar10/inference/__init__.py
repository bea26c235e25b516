"""What is done with a trained network."""
