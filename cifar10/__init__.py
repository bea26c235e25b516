"""CIFAR-10 ResNets on tf.estimator: records, input pipeline, towers, model function."""
