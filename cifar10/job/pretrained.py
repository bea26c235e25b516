"""The included trained networks, for --pretrained: each becomes a job dir.

cifar10/pretrained/ has the variables of each, float16, in NAME.npz, and the configuration, command,
commit and accuracy of its training in NAME.json. benchmarks/pretrained.py makes both.
"""

import atexit
import dataclasses
import functools
import json
import os
import shutil
import tempfile
import threading
from typing import Any

from cifar10.core import files, parts
from cifar10.core.errors import InputError
from cifar10.job import job_config
from cifar10.options.run_options import RunOptions

_unpacking = threading.Lock()  # A server's threads may load a network at the same time.


def as_job(options: RunOptions) -> tuple[RunOptions, dict[str, Any]]:
  """Returns the options with a job dir for the named network, and the job's configuration.

  Where no job dir is given, it is a temporary folder, removed when the process ends by itself.

  Raises:
    InputError: the job dir holds something else.
  """
  name = options.pretrained
  assert name
  config = _config(name)
  options = dataclasses.replace(options, job_dir=options.job_dir or _temporary(name))
  if job_config.read_config(options.job_dir) not in (None, config):
    raise InputError(
      f'--job-dir {options.job_dir} holds a job of its own, and --pretrained {name} needs a new '
      'folder; leave one of the two out'
    )
  return options, config


def unpack(options: RunOptions) -> None:
  """Writes the network that `as_job` has accepted into its job dir, unless it is there."""
  from cifar10.job import variable_files  # noqa: PLC0415  (it loads TensorFlow)

  assert options.pretrained
  with _unpacking:
    if files.exists(os.path.join(options.job_dir, 'checkpoint')):
      return
    # By its path: a folder of the user's may have the network's name.
    path = parts.PRETRAINED[options.pretrained] + '.npz'
    source = variable_files.open_source(path, '--pretrained')
    step = source.global_step
    values = {each: source.value(each) for each in source.shapes}
    checkpoint = os.path.join(options.job_dir, f'model.ckpt-{step}')
    job_config.write_config(options.job_dir, _config(options.pretrained))
    if not files.exists(checkpoint + '.index'):  # A process that was killed may have come this far.
      variable_files.write(checkpoint, values, step, '--job-dir')
    latest = f'model_checkpoint_path: "model.ckpt-{step}"\n'
    files.write_text(os.path.join(options.job_dir, 'checkpoint'), latest)


def _config(name: str) -> dict[str, Any]:
  record = json.loads(files.read_text(parts.PRETRAINED[name] + '.json'))
  return {**record['config'], 'dtype': 'float32'}  # In which any processor is fast.


@functools.cache
def _temporary(name: str) -> str:
  folder = tempfile.mkdtemp(prefix=f'{name}-')
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  return folder
