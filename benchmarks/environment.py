"""What a measurement depends on: versions and hardware."""

import os
import platform
import re
from typing import Any

import numpy as np
import tensorflow as tf


def describe() -> dict[str, Any]:
  """Versions, processor and its number of cores."""
  return {
    'versions': {
      'python': platform.python_version(),
      'tensorflow': tf.__version__,
      'numpy': np.__version__,
    },
    'hardware': {'processor': _processor(), 'cores': os.cpu_count()},
  }


def _processor() -> str:
  try:
    with open('/proc/cpuinfo', encoding='utf-8') as file:
      text = file.read()
  except OSError:  # Not Linux.
    return platform.processor() or platform.machine()
  name = re.search(r'model name\s*: (.*)', text)
  flags = ' (with AVX-512 BF16)' if 'avx512_bf16' in text else ''
  return (name.group(1).strip() if name else platform.machine()) + flags
