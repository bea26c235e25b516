"""What a job dir belongs to: one network and one training split, written down at the first run."""

import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any

from cifar10.errors import InputError
from cifar10.hparams import HParams

CONFIG_NAME = 'config.json'


def read_config(job_dir: str) -> dict[str, Any] | None:
  """The job's configuration, or None for a new job dir.

  Raises:
    InputError: the path is no folder, holds a checkpoint of another program, or a damaged file.
  """
  if os.path.exists(job_dir) and not os.path.isdir(job_dir):
    raise InputError(f'--job-dir {job_dir} is not a folder; name another')
  path = os.path.join(job_dir, CONFIG_NAME)
  try:
    with open(path, encoding='utf-8') as file:
      config = json.load(file)
    if not isinstance(config, dict):
      raise ValueError('it is no JSON object')
    return config
  except FileNotFoundError:
    if os.path.exists(os.path.join(job_dir, 'checkpoint')):
      raise InputError(
        f'--job-dir {job_dir} holds checkpoints but no {CONFIG_NAME}: another program wrote them; '
        'name another folder'
      ) from None
    return None
  except ValueError as error:
    raise InputError(f'{path} is damaged ({error}); restore it or name another --job-dir') from None


def write_config(job_dir: str, config: dict[str, Any]) -> None:
  """Writes the configuration, whole or not at all; raises InputError where that is impossible."""
  path = os.path.join(job_dir, CONFIG_NAME)
  try:
    os.makedirs(job_dir, exist_ok=True)
    with open(path + '.tmp', 'w', encoding='utf-8') as file:
      json.dump(config, file, indent=2)
      file.write('\n')
    os.replace(path + '.tmp', path)
  except OSError as error:
    raise InputError(f'--job-dir {job_dir} cannot be written ({error.strerror})') from error


def adopt_config(
  hparams: HParams, given: Iterable[str], config: dict[str, Any], fields: Iterable[str], path: str
) -> HParams:
  """The job's value for each of `fields` that was not given on the command line.

  Raises:
    InputError: one that was given differs from the job's; names every such field.
  """
  given = set(given)
  # A field that is not there is younger than the job; JSON has lists for tuples.
  job = {field: config.get(field, getattr(HParams, field)) for field in fields}
  job = {field: tuple(value) if isinstance(value, list) else value for field, value in job.items()}
  different = [
    f'{field} is {job[field]} there and {getattr(hparams, field)} here'
    for field in fields
    if field in given and job[field] != getattr(hparams, field)
  ]
  if different:
    raise InputError(
      f'--job-dir {path} belongs to another configuration: {"; ".join(different)}; '
      'name another folder or leave those flags out'
    )
  return dataclasses.replace(hparams, **job)
