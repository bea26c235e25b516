"""What is TensorFlow's, the machine's and the process's, whatever is trained."""
