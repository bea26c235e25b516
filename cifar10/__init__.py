"""CIFAR-10 ResNets on tf.estimator: records, input pipeline, towers, model function."""

import os
import platform

__version__ = '0.1.0'  # Of the package, too: pyproject.toml reads it here.

# TensorFlow reads the switch once, while it is imported, and turns its oneDNN kernels on by itself
# only for processors with AVX512_VNNI, AVX512_BF16, AVX_VNNI or AMX. With AVX2 alone they are about
# twice as fast as its own kernels, too (benchmarks/onednn.py). What the user has set wins.
if platform.machine() in ('x86_64', 'AMD64'):
  os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')
