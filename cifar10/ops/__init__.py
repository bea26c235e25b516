"""Operations with gradients of their own, where those of TensorFlow are slow."""
