"""The included trained networks, for --pretrained: each becomes a job dir.

cifar10/pretrained/ has the variables of each, float16, in NAME.npz, and the configuration, command,
commit and accuracy of its training in NAME.json. benchmarks/pretrained.py makes both.
"""

import dataclasses
import functools
import json
import os
import tempfile
from typing import Any

import cifar10
from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.job import job_config
from cifar10.options.run_options import RunOptions


def as_job(options: RunOptions) -> tuple[RunOptions, dict[str, Any]]:
  """Returns the options with a job dir for the named network, and the job's configuration.

  Where no job dir is given, it is a temporary folder, removed when the process ends by itself.
  """
  name = options.pretrained
  assert name
  there = config(name)
  options = dataclasses.replace(options, job_dir=options.job_dir or _temporary(name).name)
  if job_config.read_config(options.job_dir) not in (None, there):
    raise InputError(
      f'--job-dir {options.job_dir} holds a job of its own, and --pretrained {name} needs a new '
      'folder; leave one of the two out'
    )
  return options, there


def path(name: str) -> str:
  """Returns the path of a network's two files, without .npz and .json."""
  return os.path.join(cifar10.__path__[0], 'pretrained', name)


def config(name: str) -> dict[str, Any]:
  """Returns the configuration of a network's job."""
  record = json.loads(files.read(f'{path(name)}.json'))
  return {**record['config'], 'dtype': 'float32'}  # In which any processor is fast.


_temporary = functools.cache(lambda name: tempfile.TemporaryDirectory(prefix=f'{name}-'))
