"""JOB/config.json: the configuration and the data set of a job, and what a run of it adopts."""

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from cifar10.core import files, gone, lock
from cifar10.core.errors import InputError
from cifar10.core.option import declarations, flag_of, names, picked
from cifar10.core.user_code import require_given
from cifar10.data.manifest import DatasetInfo, describe
from cifar10.options import families
from cifar10.options.hparams import Augmentation, HParams, all_values, from_values

CONFIG_NAME = 'config.json'
LOCK = 'lock'
# The folder of requests (control_requests.py), and in the configuration the learning rates that
# were set while the job trained: {'learning_rate': 0.05}.
CONTROL = 'control'


def read_config(job_dir: str) -> dict[str, Any] | None:
  """Returns the job's configuration, or None for a new job dir; raises InputError for damage."""
  path = os.path.join(job_dir, CONFIG_NAME)
  try:
    config = json.loads(files.read(path))
  except InputError:  # Of a URL.
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
    raise damaged(job_dir, error) from None
  if not isinstance(config, dict) or not config:
    raise damaged(job_dir, 'it is no JSON object with options')
  return config


def damaged(job_dir: str, fault: object) -> InputError:
  """Returns the error for a configuration that cannot be read, with this fault."""
  path = os.path.join(job_dir, CONFIG_NAME)
  return InputError(f'{path} is damaged ({fault}); restore it or name another --job-dir')


def read_begun(job_dir: str) -> dict[str, Any] | None:
  """As `read_config`, but None as well for a job without any checkpoint, and none in best/.

  It ended before its first step, and a training may give it another configuration.
  """
  config = read_config(job_dir)
  has_list = files.exists(os.path.join(job_dir, 'checkpoint'))
  saved = files.matching(job_dir, 'model.ckpt-*') + files.matching(f'{job_dir}/best', '*')
  return config if has_list or saved else None


def adopt_config(
  given: Mapping[str, Any], config: Mapping[str, Any], path: str, *, training: bool
) -> HParams:
  """Returns the hyper-parameters of a run: the given ones, and the job's for all others.

  A training takes from the job only the options that cannot change once the job exists. All others
  are given or defaults, so that a command means the same in every process of a cluster, whether
  or not the process sees the job dir. Raises InputError that names all that differ of those.

  `given` are the options that the command line or its recipe sets; `config` is what `read_config`
  read in the job dir `path`; InputError without one. A run without `training` evaluates, predicts
  or exports.
  """
  if not config:
    raise InputError(f'--job-dir {path} holds no job; name another, or train one first')
  job = _trained_with(_renamed(config, given.get('network'), path), path)
  here = {**all_values(from_values({'network': job['network']})), **given}
  declared = declarations(HParams, Augmentation, families.find(job['network']))
  fixed = {each.name for each in declared if each.fixed} | {'network'}
  if not training:  # An evaluation may use another split, and has no learning rate.
    fixed -= names(HParams)
    # What a recipe sets in all modes, and must fit the rest of the training.
    of_training = {'train_on', *(name for name in given if name.startswith('lr_'))}
    given = {name: given[name] for name in given if name not in of_training}
  different = [name for name in job if name in fixed & set(given) and job[name] != given[name]]
  if training:  # Checkpoints hold the variables of one optimizer.
    for name in set(job) - set(given):
      require_given(flag_of(name), job[name])
    for name in (each.name for each in declared if each.switch):
      is_function = isinstance(job[name], str)
      if job[name] != here[name] if is_function else bool(job[name]) != bool(here[name]):
        different.append(name)
  if different:
    listed = [f'{name} is {job[name]} there and {here[name]} here' for name in different]
    raise InputError(
      f'--job-dir {path} belongs to another configuration: {"; ".join(listed)}; '
      'name another folder or give the flags that it was trained with'
    )
  kept = fixed | {'examples_per_epoch'}  # A source that need not be given again has its length.
  adopted = {name: value for name, value in job.items() if name in kept or not training}
  return from_values({**adopted, **given})


def _renamed(config: Mapping[str, Any], network: str | None, path: str) -> Mapping[str, Any]:
  """Returns the configuration of a job whose network is gone with the one that takes its place.

  It is a user's own of the same NAME, whose variables have the same names.
  """
  before = config.get('network')
  if not isinstance(before, str) or before not in gone.NETWORKS:
    return config
  if network is None or before != families.find(network).NAME:
    raise InputError(f'--job-dir {path}: its network, {before}, {gone.NETWORKS[before]}')
  return {**config, 'network': network}


def _trained_with(config: Mapping[str, Any], path: str) -> dict[str, Any]:
  """Returns all options of a job by name.

  An option missing there is newer than the job, which ran with the default. Older configurations
  also have options of other families, which had no effect. A schedule is of each command.
  """
  network = config.get('network', families.DEFAULT)
  family = [families.find(network)] if families.is_known(network) else []
  try:
    known = picked(config, HParams, Augmentation, *family)
    kept = {name: value for name, value in known.items() if not name.startswith('lr_')}
    return all_values(from_values({'network': network, **kept}))
  except InputError as error:
    raise damaged(path, error) from None


def described_data(job_dir: str, data_dir: str | None) -> DatasetInfo:
  """Returns the data set that a job classifies: its own; for a new job, that of the data dir.

  An existing job needs no data dir. Raises InputError if the classes of data dir and job differ.
  """
  # Without a checkpoint nothing was trained, and another data set may take its place.
  config = read_begun(job_dir) if data_dir else read_config(job_dir)
  job = None
  if config:  # A job without a data set is older than data sets other than CIFAR-10.
    path = os.path.join(job_dir, CONFIG_NAME)
    job = DatasetInfo.from_json(config.get('data_set'), f'data_set in {path}')
  if data_dir is None:
    assert job  # The command requires a data dir or a job.
    return job
  here = describe(data_dir)
  # Parameter servers read no data; other processes report a missing folder when they read.
  if job and job.classes != here.classes and files.is_dir(data_dir):
    theirs, ours = (f'{each.num_classes} classes of {each.name}' for each in (job, here))
    said = f'was trained on {theirs}, and --data-dir {data_dir} has others, {ours}'
    raise InputError(f'--job-dir {job_dir} {said}; name another of the two')
  return job or here


def before_and_now(
  job_dir: str, hparams: HParams, data_dir: str, data_set: DatasetInfo, data: dict[str, str] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns the old configuration and this run's; raises InputError for other data."""
  before = read_begun(job_dir) or {}
  if data and before.get('data') not in (None, data):
    raise InputError(
      f'--job-dir {job_dir} was trained on other data than {data_dir}: their manifests differ; '
      'name another folder'
    )
  now = {
    **all_values(hparams),
    'data_set': data_set.to_json(),
    'data': data or before.get('data'),
    **({CONTROL: before[CONTROL]} if CONTROL in before else {}),
  }
  return before, json.loads(json.dumps(now))  # With lists instead of tuples, like `before`.


def training_lock(job_dir: str) -> contextlib.AbstractContextManager[None]:
  """Returns a lock that lets only this process train in the job dir."""
  refusal = f'--job-dir {job_dir}: {{holder}} trains there; wait for its end, or name another'
  return lock.locked(os.path.join(job_dir, LOCK), refusal, os.path.join(job_dir, CONTROL))


def write_config(job_dir: str, config: dict[str, Any]) -> None:
  """Writes the configuration atomically; raises InputError if that is impossible."""
  with files.naming_errors('--job-dir', job_dir, is_first=True):
    files.make_folder(job_dir)
    path = os.path.join(job_dir, CONFIG_NAME)
    files.write_text(path, files.json_text(config, indent=2) + '\n')
