"""What the benchmarks' commands share: flags, the command line in a record, numbers, processes.

Imported before the program, which lies beside this folder and is not installed, and before
TensorFlow, whose C++ it quietens.
"""

import argparse
import itertools
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from records import ROOT

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, ROOT)

from cifar10.core import cli, errors

PROGRAM = [sys.executable, os.path.join(ROOT, 'cifar10_main.py')]
# What a record's command shows in place of the paths that were given here.
_PLACES = {
  'before': 'older',
  'data_dir': 'data',
  'torch_python': '.venv-bench/bin/python',
}


def parser(description: str | None) -> argparse.ArgumentParser:
  """A parser that fails in one line and shows the description as it is written."""
  return cli.OneLineParser(description=description)


def count(text: str) -> int:
  """A flag's value from 1 on."""
  if not text.isdecimal() or int(text) < 1:
    raise argparse.ArgumentTypeError(f'{text!r} is not a whole number from 1 on')
  return int(text)


def dtypes(text: str) -> list[str]:
  """'float32,bfloat16' or one of them."""
  names = text.split(',')
  if not set(names) <= {'float32', 'bfloat16'}:
    raise argparse.ArgumentTypeError(f'{text!r} is not float32, bfloat16 or both with a comma')
  return names


def command_line(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> str:
  """The command that these flags make, with every flag that is not at its default."""
  folder, script = os.path.split(os.path.abspath(sys.argv[0]))
  limit = os.environ.get('ONEDNN_MAX_CPU_ISA')
  words = [f'ONEDNN_MAX_CPU_ISA={limit}'] if limit else []
  words += ['python', f'{os.path.basename(folder)}/{script}']
  for name, value in vars(flags).items():
    if value is None or value == parser.get_default(name):
      continue
    words.append(f'--{name.replace("_", "-")}')
    if value is not True:
      listed = ','.join(map(str, value)) if isinstance(value, list) else str(value)
      words.append(shlex.quote(_PLACES.get(name, listed)))
  return ' '.join(words)


def medians(measured: Mapping[str, Sequence[float]]) -> dict[str, float]:
  """Of what was measured of each, by name."""
  return {name: statistics.median(values) for name, values in measured.items()}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
  """The median of the turns' ratios; theirs may have been measured once, for all turns."""
  turns = zip(ours, itertools.cycle(theirs))
  return round(statistics.median(mine / other for mine, other in turns), 3)


def last_line(command: Sequence[Any]) -> Any:
  """Runs a command, which shows its own progress, and reads the JSON that it prints last.

  Raises:
    InputError: it cannot be started, or fails.
  """
  words = [str(word) for word in command]
  try:
    result = subprocess.run(words, stdout=subprocess.PIPE, check=False)
  except OSError as error:
    raise errors.InputError(
      f'{words[0]} cannot be started ({error.strerror}); name a Python that can, as '
      '`make bench-install` sets one up'
    ) from None
  if result.returncode:
    raise errors.InputError(
      f'{" ".join(words)} ended with exit code {result.returncode}; above it says why'
    )
  return json.loads(result.stdout.splitlines()[-1])
