"""A job's checkpoints: which one to use or to resume from, and which are damaged.

A checkpoint is MODEL.index, with the position of each tensor, and the tensors in MODEL.data-... It
is whole if every tensor can be read: TensorFlow compares the checksum of each, and of each part of
the index. JOB/checkpoint is TensorFlow's list of checkpoints, with the latest one.
"""

import contextlib
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import DamagedError, InputError
from cifar10.job import best_checkpoints

BEST = 'best'  # The value of --checkpoint for the best checkpoint in JOB/best/.
# The name that TensorFlow gives its own averages, which other programs look for.
EMA_SUFFIX = '/ExponentialMovingAverage'
LIST = 'checkpoint'
_FILE = re.compile(r'(.*)\.(index|meta|data-\d{5}-of-(\d{5}))', re.DOTALL)
_Signatures = tuple[tuple[str, int, int], ...]  # Of files: paths, and what changes when they do.
_faults: dict[_Signatures, str] = {}  # Of those that this process has read or saved.
_OF_A_STEP = re.compile(r'model\.ckpt-(\d{1,18})')


class Survey(NamedTuple):
  """The checkpoints from which a training could resume."""

  newest: str | None  # The newest whole checkpoint, or None.
  damaged: Mapping[str, str]  # Newer ones that cannot be read: their paths and faults.

  @property
  def is_new(self) -> bool:
    """Tells whether nothing has been saved yet."""
    return self.newest is None and not self.damaged

  def described(self) -> str:
    """Returns 'job/model.ckpt-8 (model.ckpt-8.index is missing), ...'."""
    return ', '.join(f'{path} ({fault})' for path, fault in self.damaged.items())


def survey(job_dir: str) -> Survey:
  """Surveys a job: the checkpoint listed as the latest, or else the newest whole one.

  Raises:
    InputError: a file may not be read.
  """
  listed, fault = _read_list(job_dir)
  damaged = {os.path.join(job_dir, LIST): fault} if fault else {}
  if listed:
    fault = fault_of(listed)
    if not fault:
      return Survey(listed, {})
    if _read_list(job_dir)[0] != listed:  # The training has saved a newer one and deleted this one.
      return survey(job_dir)
    damaged[listed] = fault
  by_step = all_by_step(job_dir)
  for _, path in sorted(by_step.items(), reverse=True):
    if not listed or files.absolute(path) != files.absolute(listed):
      fault = fault_of(path)
      if not fault:
        return Survey(path, damaged)
      damaged[path] = fault
  if not listed and not any(by_step):  # Killed during its first save, at step 0.
    return Survey(None, {})
  return Survey(None, damaged)


def listed(job_dir: str) -> str | None:
  """Returns the latest checkpoint in TensorFlow's list, whole or not."""
  return _read_list(job_dir)[0]


def fault_of(checkpoint: str) -> str:
  """Returns what is wrong with a checkpoint; '' if it is whole.

  Reads all of it, once in a process: 1 ms for a ResNet-8, 0.7 s for the 290 MB of a WRN-28-10.
  """
  there = _signed(checkpoint)
  if not there or there not in _faults:
    from cifar10.job import checkpoint_faults  # noqa: PLC0415  (not for what this process saved)

    sizes = {os.path.basename(path): size for path, size, _ in there}
    _faults[there] = checkpoint_faults.fault(checkpoint, sizes)
  return _faults[there]


def remember(checkpoint: str, fault: str = '') -> None:
  """Remembers in this process what is wrong with a checkpoint, as long as it is the same."""
  _faults[_signed(checkpoint)] = fault


def _signed(checkpoint: str) -> _Signatures:
  signatures = []
  for path in files_of(checkpoint):
    with contextlib.suppress(FileNotFoundError):  # The training has just deleted it.
      signatures.append((path, *files.signature(path)))
  return tuple(signatures)


def step_of(checkpoint: str) -> int | None:
  """Returns the step in a checkpoint's name, or None."""
  named = _OF_A_STEP.fullmatch(os.path.basename(checkpoint))
  return int(named[1]) if named else None


def is_saved(checkpoint: str, job_dir: str, step: int) -> bool:
  """Tells whether a job's training saved this checkpoint of a step, or its copy in best/."""
  folder = os.path.dirname(checkpoint)
  homes = (job_dir, os.path.join(job_dir, best_checkpoints.FOLDER))
  # Each inside the other: the same one, by whatever name.
  is_home = any(files.is_inside(folder, home) and files.is_inside(home, folder) for home in homes)
  named = step_of(checkpoint)
  # Asynchronous workers make steps between the naming and the save.
  return is_home and named is not None and named <= step


def find(job_dir: str, named: str | None) -> str:
  """Returns the path of a checkpoint: the latest, or the `named` one, a path or BEST.

  Raises:
    InputError: it does not exist.
    DamagedError: it cannot be read; the message names the newest one that can.
  """
  if named == BEST:
    named = best_checkpoints.checkpoint(job_dir)
  if not named:
    surveyed = survey(job_dir)
    if surveyed.is_new:
      raise InputError(f'--job-dir {job_dir} holds no checkpoint; train first')
    if surveyed.damaged:
      raise _damaged(job_dir, surveyed.described())
    assert surveyed.newest
    return surveyed.newest
  try:
    if not files_of(named):
      raise InputError(f'--checkpoint {named} does not exist; leave it out for the latest')
  except OSError as error:  # An error of a URL.
    raise InputError(
      f'--checkpoint {named} cannot be read ({error.strerror}); name another'
    ) from None
  if fault := fault_of(named):
    raise _damaged(job_dir, f'{named} ({fault})')
  return named


def _damaged(job_dir: str, described: str) -> DamagedError:
  """Returns the error for a damaged checkpoint, with a whole one as the remedy."""
  best = all_by_step(os.path.join(job_dir, best_checkpoints.FOLDER))
  newest_best = (best[step] for step in sorted(best, reverse=True) if not fault_of(best[step]))
  newest = survey(job_dir).newest or next(newest_best, None)
  if not newest:
    return DamagedError(f'damaged: {described}; no checkpoint of {job_dir} is whole: restore it')
  return DamagedError(
    f'damaged: {described}; the newest whole checkpoint is {newest}: name it with --checkpoint, or '
    'train on, which starts there'
  )


def to_resume_from(job_dir: str) -> Survey:
  """Returns where training resumes; raises DamagedError if no checkpoint is whole."""
  surveyed = survey(job_dir)
  if surveyed.damaged and not surveyed.newest:
    raise DamagedError(
      f'damaged: {surveyed.described()}; no checkpoint of --job-dir {job_dir} is whole: restore '
      'one, or name another folder'
    )
  return surveyed


def global_step(checkpoint: str) -> int:
  """Returns the step at which a checkpoint was saved."""
  return int(tf.compat.v1.train.NewCheckpointReader(checkpoint).get_tensor('global_step'))


def latest_step(job_dir: str) -> int:
  """Returns the step of the newest whole checkpoint; 0 if there is none."""
  newest = survey(job_dir).newest
  return global_step(newest) if newest else 0


def _read_list(job_dir: str) -> tuple[str | None, str]:
  """Returns the latest checkpoint in TensorFlow's list, and what is wrong with the list."""
  path = os.path.join(job_dir, LIST)
  if not files.is_named(path):
    return None, 'it is missing' if all_by_step(job_dir) else ''
  try:
    files.read_text(path)  # It may be a pipe, which TensorFlow would wait for.
    state = tf.train.get_checkpoint_state(job_dir)
  except PermissionError as error:
    raise InputError(f'{path} cannot be read ({error.strerror}); allow it') from None
  except (tf.errors.OpError, OSError, ValueError):  # It is a folder; it is no text.
    state = None
  if state and state.model_checkpoint_path:
    return state.model_checkpoint_path, ''
  is_empty = files.is_file(path) and not files.size(path)
  return None, 'it is empty' if is_empty else 'it is no list of checkpoints'


def all_by_step(folder: str) -> dict[int, str]:
  """Returns the checkpoints of which index or data exist, by step."""
  found = filter(None, map(_FILE.fullmatch, files.matching(folder, 'model.ckpt-*')))
  paths = (named[1] for named in found if named[2] != 'meta')
  return {step: path for path in paths if (step := step_of(path)) is not None}


def files_of(checkpoint: str) -> list[str]:
  """Returns a checkpoint's existing files, sorted."""
  folder, name = os.path.split(checkpoint)
  return [
    path
    for path in files.matching(folder, '*')
    if (named := _FILE.fullmatch(os.path.basename(path))) and named[1] == name
  ]
