"""Operations with gradients of our own, where TensorFlow's gradients are slow."""
