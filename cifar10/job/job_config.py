"""JOB/config.json: the configuration and the data set that a job is trained with."""

import json
import os
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from cifar10.core import files, storage_errors
from cifar10.core.errors import InputError
from cifar10.core.option import Option, declarations, from_json, names
from cifar10.data.augmentation import Augmentation
from cifar10.data.info import DatasetInfo, describe
from cifar10.job import control_requests
from cifar10.networks.registry import DEFAULT, FAMILIES
from cifar10.options.hparams import HParams, all_values, from_values

CONFIG_NAME = 'config.json'
_CONTROL = 'control'  # What was set while it trained: {'learning_rate': 0.05}.


def read_config(job_dir: str) -> dict[str, Any] | None:
  """The job's configuration, or None for a new job dir.

  Raises:
    InputError: the path is no folder or cannot be read, holds a checkpoint of another program, or a
      damaged file.
  """
  path = os.path.join(job_dir, CONFIG_NAME)
  try:
    if files.exists(job_dir) and not files.is_dir(job_dir):
      raise InputError(f'--job-dir {job_dir} is not a folder; name another')
    config = json.loads(files.read_text(path))
    if not isinstance(config, dict) or not config:
      raise ValueError('it is no JSON object with options')
    _check_digests(config.get('data'))
    return config
  except InputError:
    raise
  except FileNotFoundError:
    if files.exists(os.path.join(job_dir, 'checkpoint')):
      raise InputError(
        f'--job-dir {job_dir} holds checkpoints but no {CONFIG_NAME}: another program wrote them; '
        'name another folder'
      ) from None
    return None
  except OSError as error:
    raise InputError(f'{path} cannot be read ({error.strerror}); name another --job-dir') from None
  except (ValueError, RecursionError) as error:
    raise InputError(f'{path} is damaged ({error}); restore it or name another --job-dir') from None


def _check_digests(data: Any) -> None:
  """Raises ValueError for what is neither the digests of record files nor nothing."""
  is_object = isinstance(data, dict) and all(isinstance(each, str) for each in data.values())
  if data is not None and not is_object:
    raise ValueError(f'data is {data!r:.60}: it must be the SHA-256 of each split')


def adopt_config(
  given: Mapping[str, Any], config: Mapping[str, Any], path: str, *, training: bool
) -> HParams:
  """The hyper-parameters of a run: the command line's, and the job's where that sets none.

  A training takes from the job only the options that cannot change once the job exists. All others
  are the command line's or defaults, so that a command means the same to every process of a
  cluster, whether or not it sees the job dir.

  Args:
    given: the options that the command line or its recipe sets, by name.
    config: from `read_config`.
    path: the job dir, for messages.
    training: or evaluating, predicting, exporting.

  Raises:
    InputError: an option that cannot change, or the kind of the optimizer, differs (the message
      names all of them); or an option refuses its value in the configuration.
  """
  job, known = _trained_with(config, path)
  here = {**all_values(from_values({'network': job['network']})), **given}
  fixed = _names_where(job['network'], lambda declared: declared.fixed) | {'network'}
  if not training:  # An evaluation may be of another split.
    fixed -= names(HParams)
  different = [name for name in job if name in fixed & set(given) and job[name] != given[name]]
  if training:  # Its checkpoints hold one optimizer's variables.
    switches = _names_where(job['network'], lambda declared: declared.switch) & known
    different += [name for name in job if name in switches and bool(job[name]) != bool(here[name])]
  if different:
    listed = [f'{name} is {job[name]} there and {here[name]} here' for name in different]
    raise InputError(
      f'--job-dir {path} belongs to another configuration: {"; ".join(listed)}; '
      'name another folder or give the flags that it was trained with'
    )
  adopted = {name: value for name, value in job.items() if name in fixed or not training}
  return from_values({**adopted, **given})


def _trained_with(config: Mapping[str, Any], path: str) -> tuple[dict[str, Any], set[str]]:
  """All options of a job by name, and the names of those that its configuration has.

  An option that it lacks is newer than the job, which ran with the default. Older configurations
  also have options of other families, which had no effect.
  """
  network = config.get('network', DEFAULT)
  family = FAMILIES.get(network) if isinstance(network, str) else None
  try:
    classes = (HParams, Augmentation, *((family,) if family else ()))
    known = dict(from_json(classes, config))
    return all_values(from_values({'network': network, **known})), set(known)
  except InputError as error:
    file = os.path.join(path, CONFIG_NAME)
    raise InputError(f'{file} is damaged ({error}); restore it or name another --job-dir') from None


def _names_where(network: str, holds: Callable[[Option], bool]) -> set[str]:
  """The names of the options of this network's training whose declaration `holds` accepts."""
  return {
    declared.name
    for cls in (HParams, Augmentation, FAMILIES[network])
    for declared in declarations(cls)
    if holds(declared.option)
  }


def described_data(job_dir: str, data_dir: str | None) -> DatasetInfo:
  """The data set that a job classifies: its own, or that of the data dir where the job is new.

  Args:
    job_dir: new, or one of this program.
    data_dir: None only where the job is not new.

  Raises:
    InputError: the data dir has other classes than the job.
  """
  config = read_config(job_dir)
  job = None
  if config:  # A job without one is older than data sets other than CIFAR-10.
    path = os.path.join(job_dir, CONFIG_NAME)
    job = DatasetInfo.from_json(config.get('data_set'), f'data_set in {path}')
  if data_dir is None:
    assert job  # The command asks for a data dir, or for a job.
    return job
  here = describe(data_dir)
  # Parameter servers read no data; all others name a missing folder when they read it.
  if job and job.classes != here.classes and files.is_dir(data_dir):
    label = next(i for i, (a, b) in enumerate(zip_longest(job.classes, here.classes)) if a != b)
    theirs, ours = (dict(enumerate(data.classes)).get(label, 'none') for data in (job, here))
    raise InputError(
      f'--job-dir {job_dir} was trained on {job.num_classes} classes of {job.name}, and --data-dir '
      f'{data_dir} has {here.num_classes} of {here.name}: class {label} is {theirs} and {ours}; '
      'name another of the two'
    )
  return job or here


def update_config(
  job_dir: str,
  hparams: HParams,
  data_dir: str,
  data_set: DatasetInfo,
  data: dict[str, str] | None,
  *,
  writes: bool = True,
) -> list[str]:
  """Writes the configuration of this run into the job dir.

  Args:
    job_dir: new, or what `adopt_config` accepted.
    hparams: of this run.
    data_dir: where its data are; for the message.
    data_set: what it classifies.
    data: digests of the record files, by split; None: they are not known.
    writes: False: only checks, as for a dry run.

  Returns:
    What differs from the run before: 'train_steps 100 -> 200'.

  Raises:
    InputError: the job was trained on other data, or the folder cannot be written.
  """
  before, now = _before_and_now(job_dir, hparams, data_dir, data_set, data)
  if not writes:
    _check_writable(job_dir)
  elif now != before:
    _write_config(job_dir, now)
  if before:  # An option that it lacks had its default.
    before = {**json.loads(json.dumps(_trained_with(before, job_dir)[0])), **before}
  return _changes(before, now)


def _check_writable(job_dir: str) -> None:
  """Raises InputError where the folder, or the one that it would be made in, cannot be written."""
  if files.is_url(job_dir):  # Only a write tells who may.
    return
  there = os.path.abspath(job_dir)
  while not os.path.exists(there):
    there = os.path.dirname(there)
  if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
    raise InputError(f'--job-dir {job_dir} cannot be written: {there} cannot; name another folder')


def _before_and_now(
  job_dir: str,
  hparams: HParams,
  data_dir: str,
  data_set: DatasetInfo,
  data: dict[str, str] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
  """The configuration that is there and the one of this run; raises InputError for other data."""
  before = read_config(job_dir) or {}
  if data and before.get('data') not in (None, data):
    raise InputError(
      f'--job-dir {job_dir} was trained on other data than {data_dir}: their manifests differ; '
      'name another folder'
    )
  now = {
    **all_values(hparams),
    'data_set': data_set.to_json(),
    'data': data or before.get('data'),
    **({_CONTROL: before[_CONTROL]} if _CONTROL in before else {}),
  }
  return before, json.loads(json.dumps(now))  # With lists for tuples, as `before` has.


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
  return [
    f'{key} {before[key]} -> {now[key]}' for key in now if before.get(key, now[key]) != now[key]
  ]


def read_control(job_dir: str) -> dict[str, float]:
  """The learning rates that `control` has set in a job, by name.

  Raises:
    InputError: the configuration has something else there.
  """
  rates = (read_config(job_dir) or {}).get(_CONTROL, {})
  try:
    if not isinstance(rates, dict):
      raise InputError('it is no JSON object')
    orders = [control_requests.parse(f'{name}={value}') for name, value in rates.items()]
  except InputError as error:
    path = os.path.join(job_dir, CONFIG_NAME)
    raise InputError(
      f'{path} is damaged (control: {error}); restore it or name another --job-dir'
    ) from None
  return {order.verb: order.value for order in orders if order.value is not None}


def remember_control(job_dir: str, rates: Mapping[str, float]) -> None:
  """Writes the learning rates that `control` has set, in place of earlier ones.

  Raises:
    InputError: the folder cannot be written.
  """
  config = {key: value for key, value in (read_config(job_dir) or {}).items() if key != _CONTROL}
  _write_config(job_dir, {**config, **({_CONTROL: dict(rates)} if rates else {})})


def _write_config(job_dir: str, config: dict[str, Any]) -> None:
  """Writes the configuration, whole or not at all; raises InputError where that is impossible."""
  path = os.path.join(job_dir, CONFIG_NAME)
  with storage_errors.refusing('--job-dir', job_dir):
    files.make_folder(job_dir)
    files.write_text(path, json.dumps(config, indent=2) + '\n')
