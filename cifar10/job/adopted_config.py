"""Combines the options of a run with the configuration of the job that it continues."""

import json
import os
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cifar10.core.errors import InputError
from cifar10.core.option import declarations, names
from cifar10.options import families, gone
from cifar10.options.augmentation import Augmentation
from cifar10.options.hparams import HParams, all_values, family_of, from_values

# Options that must fit others of the training, which a recipe sets in all modes.
_OF_TRAINING = (
  'lr_values',
  'lr_boundaries_epochs',
  'lr_boundaries_steps',
  'lr_triangle',
  'train_on',
)


def adopt_config(
  given: Mapping[str, Any], config: Mapping[str, Any], path: str, *, training: bool
) -> HParams:
  """Returns the hyper-parameters of a run: the given ones, and the job's for all others.

  A training takes from the job only the options that cannot change once the job exists. All others
  are given or defaults, so that a command means the same in every process of a cluster, whether
  or not the process sees the job dir.

  `given` are the options that the command line or its recipe sets; `config` is what `read_config`
  read in the job dir `path`. A run without `training` evaluates, predicts or exports.

  Raises:
    InputError: an option that cannot change, or the kind of optimizer, differs (the message
      names all of them); or the configuration has an invalid value.
  """
  job, known = _trained_with(_renamed(config, given.get('network'), path), path)
  here = {**all_values(from_values({'network': job['network']})), **given}
  classes = (HParams, Augmentation, families.find(job['network']))
  declared = {each.name: each.option for cls in classes for each in declarations(cls)}
  fixed = {name for name, option in declared.items() if option.fixed} | {'network'}
  if not training:  # An evaluation may use another split, and has no learning rate.
    fixed -= names(HParams)
    given = {name: value for name, value in given.items() if name not in _OF_TRAINING}
  different = [name for name in job if name in fixed & set(given) and job[name] != given[name]]
  if training:  # Checkpoints hold the variables of one optimizer.
    switches = {name for name, option in declared.items() if option.switch} & known
    different += [name for name in job if name in switches and bool(job[name]) != bool(here[name])]
  if different:
    listed = [f'{name} is {job[name]} there and {here[name]} here' for name in different]
    raise InputError(
      f'--job-dir {path} belongs to another configuration: {"; ".join(listed)}; '
      'name another folder or give the flags that it was trained with'
    )
  adopted = {name: value for name, value in job.items() if name in fixed or not training}
  return from_values({**adopted, **given})


def _renamed(config: Mapping[str, Any], network: str | None, path: str) -> Mapping[str, Any]:
  """Returns the configuration of a job whose network is gone with the one that takes its place.

  It is a user's own of the same NAME, whose variables have the same names.
  """
  before = config.get('network')
  if not isinstance(before, str) or before not in gone.NETWORKS:
    return config
  if network is None or not families.is_known(network) or before != family_of(network).NAME:
    raise InputError(f'--job-dir {path}: its network, {before}, {gone.NETWORKS[before]}')
  return {**config, 'network': network}


def _trained_with(config: Mapping[str, Any], path: str) -> tuple[dict[str, Any], set[str]]:
  """Returns all options of a job by name, and the names of those in its configuration.

  An option missing there is newer than the job, which ran with the default. Older configurations
  also have options of other families, which had no effect.
  """
  network = config.get('network', families.DEFAULT)
  family = family_of(network) if families.is_known(network) else None
  try:
    classes = (HParams, Augmentation, *((family,) if family else ()))
    known = dict(from_json(classes, config))
    return all_values(from_values({'network': network, **known})), set(known)
  except InputError as error:
    file = os.path.join(path, 'config.json')
    raise InputError(f'{file} is damaged ({error}); restore it or name another --job-dir') from None


def from_json(classes: Collection[type], config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
  """Yields the options of these classes in a JSON object, with tuples for JSON's lists."""
  for declared in (each for cls in classes for each in declarations(cls)):
    if declared.name in config:
      value = config[declared.name]
      is_tuple = typing.get_origin(declared.kind) is tuple and isinstance(value, list)
      yield declared.name, tuple(value) if is_tuple else value


def changes(before: dict[str, Any], now: dict[str, Any], job_dir: str) -> list[str]:
  """Returns what differs between two configurations of a job: 'train_steps 100 -> 200'."""
  # A missing option had its default.
  before = {**before, **_renamed(before, now['network'], job_dir)}
  before = {**json.loads(json.dumps(_trained_with(before, job_dir)[0])), **before}
  return [
    f'{key} {before[key]} -> {now[key]}' for key in now if before.get(key, now[key]) != now[key]
  ]
