"""Training and evaluation: towers, gradients, optimizers, the model function, the trainer."""
