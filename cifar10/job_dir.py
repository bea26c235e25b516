"""What a job dir belongs to, and what trained in it: written down for later commands."""

import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any

from cifar10.errors import InputError
from cifar10.hparams import FIXED_FIELDS, NETWORK_FIELDS, OPTIMIZER_SWITCHES, HParams

CONFIG_NAME = 'config.json'


def read_config(job_dir: str) -> dict[str, Any] | None:
  """The job's configuration, or None for a new job dir.

  Raises:
    InputError: the path is no folder or cannot be read, holds a checkpoint of another program, or a
      damaged file.
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
  except OSError as error:
    raise InputError(f'{path} cannot be read ({error.strerror}); name another --job-dir') from None
  except ValueError as error:
    raise InputError(f'{path} is damaged ({error}); restore it or name another --job-dir') from None


def adopt_config(
  hparams: HParams, given: Iterable[str], config: dict[str, Any], path: str, *, training: bool
) -> HParams:
  """What the job was trained with, in place of what the command line does not say.

  While training that is only what a job dir belongs to. All else is the command's, so that it
  means the same to every process of a cluster, whichever of them see the folder.

  Raises:
    InputError: what the job dir belongs to, or the kind of its optimizer, differs; names it all.
  """
  given = set(given)
  # What is not there is younger than the job; JSON has lists for tuples.
  job = {field: getattr(HParams, field) for field in FIXED_FIELDS}
  for field in dataclasses.fields(HParams):
    if field.name in config:
      value = config[field.name]
      job[field.name] = tuple(value) if isinstance(value, list) else value
  fixed = FIXED_FIELDS if training else NETWORK_FIELDS
  different = [field for field in fixed if field in given and job[field] != getattr(hparams, field)]
  if training:  # Its checkpoints hold one optimizer's variables.
    different += [
      field
      for field in OPTIMIZER_SWITCHES
      if field in job and bool(job[field]) != bool(getattr(hparams, field))
    ]
  if different:
    listed = [
      f'{field} is {job[field]} there and {getattr(hparams, field)} here' for field in different
    ]
    raise InputError(
      f'--job-dir {path} belongs to another configuration: {"; ".join(listed)}; '
      'name another folder or give the flags that it was trained with'
    )
  adopted = FIXED_FIELDS if training else job
  return dataclasses.replace(hparams, **{name: job[name] for name in adopted if name not in given})


def claim(job_dir: str, hparams: HParams, data_dir: str, data: dict[str, str] | None) -> list[str]:
  """Writes down what the job is trained with from now on.

  Args:
    job_dir: new, or what `adopt_config` accepted.
    hparams: of this run.
    data_dir: where its data are; for the message.
    data: digests of the record files, by split; None: they are not known.

  Returns:
    What is unlike the run before: 'train_steps 100 -> 200'.

  Raises:
    InputError: the job was trained on other data, or the folder cannot be written.
  """
  before = read_config(job_dir) or {}
  if data and before.get('data') not in (None, data):
    raise InputError(
      f'--job-dir {job_dir} was trained on other data than {data_dir}: their manifests differ; '
      'name another folder'
    )
  now = {**dataclasses.asdict(hparams), 'data': data or before.get('data')}
  now = json.loads(json.dumps(now))  # With lists for tuples, as `before` has.
  if now != before:
    _write_config(job_dir, now)
  return [
    f'{key} {before[key]} -> {now[key]}' for key in now if before.get(key, now[key]) != now[key]
  ]


def _write_config(job_dir: str, config: dict[str, Any]) -> None:
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
