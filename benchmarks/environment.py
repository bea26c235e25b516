"""What a measurement depends on: commit, versions and hardware."""

import argparse
import os
import platform
import re
import subprocess
from typing import Any

import commands
import numpy as np
import tensorflow as tf

from cifar10.core import devices, limits


def head(name: str, parser: argparse.ArgumentParser, flags: argparse.Namespace) -> dict[str, Any]:
  """How a record begins: its name and command, how often it measures in turn, `describe`."""
  given = vars(flags)
  often = {'pairs': 'pairs', 'turns': 'turns', 'seconds_of_a_turn': 'seconds'}
  return {
    'name': name,
    'command': commands.command_line(parser, flags),
    **{said: given[flag] for said, flag in often.items() if flag in given},
    **describe(given.get('num_gpus', 0)),
  }


def describe(num_gpus: int = 0) -> dict[str, Any]:
  """Commit, versions, processor and its number of cores, and the first GPU where one is used."""
  hardware: dict[str, Any] = {'processor': _processor(), 'cores': limits.cores()}
  if num_gpus:
    hardware['gpu'] = devices.described_hardware()['gpus'][0]
  return {
    'commit': _COMMIT,
    'versions': {
      'python': platform.python_version(),
      'tensorflow': tf.__version__,
      'numpy': np.__version__,
    },
    'hardware': hardware,
  }


def commit(checkout: str) -> str:
  """A checkout's commit, with '-dirty' where tracked files were changed; '' without git."""
  command = ['git', 'describe', '--always', '--dirty', '--exclude', '*']
  result = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
  return result.stdout.strip()


def _processor() -> str:
  try:
    with open('/proc/cpuinfo', encoding='utf-8') as file:
      text = file.read()
  except OSError:  # Not Linux.
    return platform.processor() or platform.machine()
  name = re.search(r'model name\s*: (.*)', text)
  named = name.group(1).strip() if name else platform.machine()
  # A virtual machine's processor is often named after its maker alone.
  generation = re.search(r'cpu family\s*: (\d+)\nmodel\s*: (\d+)', text)
  if generation:
    named += ', family {} model {}'.format(*generation.groups())
  has = {'avx512_bf16': 'AVX-512 BF16', 'amx_bf16': 'AMX'}
  found = [shown for flag, shown in has.items() if flag in text]
  if found:
    named += f' (with {" and ".join(found)})'
  limit = os.environ.get('ONEDNN_MAX_CPU_ISA')  # Of the library that computes convolutions.
  if limit:
    named += f', limited to {limit} by ONEDNN_MAX_CPU_ISA'
  return named


# When the measurement starts: the checkout may go on meanwhile.
_COMMIT = commit(commands.ROOT)
