"""A job's checkpoints: which one to use or to resume from, which are damaged, and JOB/best/.

A checkpoint is MODEL.index, with the position of each tensor, and the tensors in MODEL.data-... It
is whole if TensorFlow can read every tensor: it compares a checksum of each, and of each part of
the index. JOB/checkpoint is TensorFlow's list of checkpoints, with the latest one. JOB/best/ has
copies of the best ones, and best.json the evaluations that chose them:

  {"accuracy": 0.93, "global_step": 4000, ..., "checkpoint": "model.ckpt-4000",
   "others": [the next best evaluation, ...]}
"""

import contextlib
import functools
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log, one_line

BEST = 'best'  # The folder, and the value of --checkpoint for the best one in it.
BEST_NAME = 'best.json'
# The name that TensorFlow gives its own averages, which other programs look for.
EMA_SUFFIX = '/ExponentialMovingAverage'
LIST = 'checkpoint'
DAMAGED = 'damaged'  # The folder in the job dir to which damaged checkpoints are moved.
_PART = re.compile(r'\.(index|meta|data-\d{5}-of-\d{5})')


class Survey(NamedTuple):
  """The checkpoints from which a training could resume."""

  newest: str | None  # The newest whole checkpoint; None if nothing has been saved yet.
  damaged: Mapping[str, str]  # Newer ones that cannot be read: their paths and faults.

  def described(self) -> str:
    """Returns 'job/model.ckpt-8 (its index is missing), ...'."""
    return ', '.join(f'{path} ({fault})' for path, fault in self.damaged.items())


def survey(job_dir: str) -> Survey:
  """Surveys a job: the checkpoint listed as the latest, or else the newest whole one.

  Raises InputError if all are damaged.
  """
  latest, by_step = listed(job_dir), all_by_step(job_dir)
  paths = [path for _, path in sorted(by_step.items(), reverse=True)]
  damaged = {}
  if not latest and not any(by_step):  # A new job, or one that was killed during its first save.
    return Survey(None, {})
  if latest:  # Whoever wrote the list anew has given up what is newer.
    paths = [latest, *(each for each in paths if files.absolute(each) != files.absolute(latest))]
  else:
    damaged[os.path.join(job_dir, LIST)] = 'it names no checkpoint'
  for path in paths:
    if not (fault := fault_of(path)):
      return Survey(path, damaged)
    if path == latest != listed(job_dir):  # A training has saved a newer one and deleted this one.
      return survey(job_dir)
    damaged[path] = fault
  raise InputError(
    f'damaged: {Survey(None, damaged).described()}; no checkpoint in {job_dir} is whole: restore '
    'one, or name another folder'
  )


def listed(job_dir: str) -> str | None:
  """Returns the latest checkpoint in TensorFlow's list, whole or not."""
  with contextlib.suppress(ValueError):  # It is no text.
    if state := tf.train.get_checkpoint_state(job_dir):
      return state.model_checkpoint_path or None
  with contextlib.suppress(FileNotFoundError):
    files.read(os.path.join(job_dir, LIST))  # Which may not be read: TensorFlow says nothing.
  return None


def fault_of(checkpoint: str) -> str:
  """Returns what is wrong with a checkpoint; '' if it is whole.

  Reads all of it, once in a process: 1 ms for a ResNet-8, 0.7 s for the 290 MB of a WRN-28-10. An
  OSError, that it cannot be read now, says nothing of its content.
  """
  files.check_no_pattern(checkpoint)
  signatures = {}
  with contextlib.suppress(FileNotFoundError):  # The training has just deleted it.
    signatures = {path: files.signature(path) for path in files_of(checkpoint)}
  if not any(path.endswith('.index') for path in signatures):
    return 'its index is missing'
  return _fault_in(checkpoint, *signatures.items())


@functools.cache
def _fault_in(checkpoint: str, *signatures: tuple[str, tuple[int, int]]) -> str:
  """As `fault_of`; the checkpoint's files have these signatures."""
  try:
    reader = tf.compat.v1.train.NewCheckpointReader(checkpoint)
    for name in reader.get_variable_to_shape_map():
      reader.get_tensor(name)
    return ''
  except Exception as error:  # Of many kinds: a file that is too short is an IndexError.
    with contextlib.suppress(FileNotFoundError):  # As in `fault_of`.
      for path, _ in signatures:  # What may not be read, or is out of reach, is not damaged.
        files.read(path)
    return one_line(str(error).partition('\n')[0])


def step_of(checkpoint: str) -> int | None:
  """Returns the step in a checkpoint's name, or None."""
  named = re.fullmatch(r'model\.ckpt-(\d{1,18})', os.path.basename(checkpoint))
  return int(named[1]) if named else None


def find(job_dir: str, named: str | None, how: str = 'by --checkpoint') -> str:
  """Returns the path of a whole checkpoint: the latest, or the `named` one, a path or BEST.

  Raises InputError where there is none, or it is damaged, with the newest whole one as the remedy;
  `how` says by what another is named.
  """
  path = best(job_dir) if named == BEST else named
  if path and not files_of(path):
    like = 'name one like job/model.ckpt-500, or leave it out for the latest'
    raise InputError(f'--checkpoint {path} is no checkpoint; {like}')
  if path:
    fault = fault_of(path)
    found = Survey(path, {path: fault} if fault else {})
  else:
    found = survey(job_dir)
  if found.damaged:
    remedy = f'name another {how}'
    if newest := survey(job_dir).newest if path else found.newest:
      remedy += f': the newest whole checkpoint is {newest}; or train on, which starts there'
    raise InputError(f'damaged: {found.described()}; {remedy}')
  if not found.newest:
    raise InputError(f'{job_dir} holds no checkpoint; name another folder, or train first')
  return found.newest


def set_aside(job_dir: str, surveyed: Survey) -> None:
  """Moves damaged checkpoints to JOB/damaged/, where no save replaces them; lists the others."""
  newest, folder = surveyed.newest, os.path.join(job_dir, DAMAGED)
  assert newest
  files.make_folder(folder)
  for damaged in surveyed.damaged:
    if files.absolute(os.path.dirname(damaged)) == files.absolute(job_dir):
      for path in [*files_of(damaged), *([damaged] if files.is_file(damaged) else [])]:
        files.move(path, os.path.join(folder, os.path.basename(path)))
  # Names, not paths, because the folder may be moved.
  last = step_of(newest) or 0
  kept = [path for step, path in sorted(all_by_step(job_dir).items()) if step <= last]
  lines = [f'model_checkpoint_path: "{os.path.basename(newest)}"']
  lines += [f'all_model_checkpoint_paths: "{os.path.basename(path)}"' for path in kept]
  files.write_text(os.path.join(job_dir, LIST), '\n'.join(lines) + '\n')
  lost = max([last, *filter(None, map(step_of, surveyed.damaged))]) - last
  described = f'damaged: {surveyed.described()}; moved to {folder}'
  log.info(f'{described}; going on from {newest}: {lost:,} steps are made again')


def global_step(checkpoint: str) -> int:
  """Returns the step at which a checkpoint was saved; raises InputError if it says none."""
  reader = tf.compat.v1.train.NewCheckpointReader(checkpoint)
  if not reader.has_tensor('global_step'):
    raise InputError(f'{checkpoint} is of no training: it has no global_step; name another')
  return int(reader.get_tensor('global_step'))


def latest_step(job_dir: str) -> int:
  """Returns the step of the newest whole checkpoint; 0 if there is none."""
  newest = survey(job_dir).newest
  return global_step(newest) if newest else 0


def all_by_step(folder: str) -> dict[int, str]:
  """Returns the checkpoints of which index or data exist, by step."""
  paths = (path.rpartition('.')[0] for path in files.matching(folder, 'model.ckpt-*.[di]*'))
  return {step: path for path in paths if (step := step_of(path)) is not None}


def files_of(checkpoint: str) -> list[str]:
  """Returns a checkpoint's existing files, sorted."""
  folder, name = os.path.split(checkpoint)
  paths = files.matching(folder, '*')
  return [path for path in paths if _PART.fullmatch(os.path.basename(path).removeprefix(name))]


class Saver(tf.compat.v1.train.Saver):
  """TensorFlow's, with one line for what does not fit; what it saves survives a power failure."""

  def restore(self, sess: tf.compat.v1.Session, save_path: str) -> None:
    """Raises InputError where the checkpoint lacks a variable, or has another shape or type."""
    fault = self._other_shape(save_path)
    try:
      if not fault:
        super().restore(sess, save_path)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
      # The line before the operation's name; those above it say where the operation was made.
      said = re.search(r'(.+)\n\t \[\[', str(error))
      fault = said[1] if said else str(error).partition('\n')[0]
    if fault:
      raise InputError(
        f'{save_path} does not fit the network ({fault}); undo what changed its variables, or name '
        'another --checkpoint or --job-dir'
      )

  def _other_shape(self, path: str) -> str:
    """Returns which variable has another shape, the one difference that TensorFlow lets pass."""
    there = tf.compat.v1.train.NewCheckpointReader(path).get_variable_to_shape_map()
    named = self._var_list
    if not isinstance(named, dict):
      named = {each.name.partition(':')[0]: each for each in named or ()}
    for name, variable in named.items():
      shape = variable.shape.as_list() if hasattr(variable, 'shape') else None  # A table has none.
      if shape is not None and there.get(name, shape) != shape:
        return f'it has {name} of {there[name]}, not {shape}'
    return ''

  def _RecordLastCheckpoint(self, latest_save_path: str) -> None:  # noqa: N802  (TensorFlow's name)
    # Before older ones are deleted: after a power failure the new one could be empty.
    for path in files_of(latest_save_path):
      files.flush(path)
    super()._RecordLastCheckpoint(latest_save_path)


def read_best(job_dir: str, folder: str = BEST) -> list[dict[str, Any]]:
  """Returns the evaluations of the best checkpoints, best first; raises InputError for damage."""
  path = os.path.join(job_dir, folder, BEST_NAME)
  try:
    content = json.loads(files.read(path))
    entries = [content, *content.pop('others')]
    for entry in entries:
      if missing := {'accuracy', 'checkpoint', 'global_step'} - entry.keys():
        raise ValueError(f'it lacks {missing}')
    return entries
  except (FileNotFoundError, NotADirectoryError):
    return []
  except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
    raise InputError(
      f'{path} is damaged ({error!r}); remove the folder, and the next evaluation chooses again'
    ) from None


def best(job_dir: str) -> str:
  """Returns the path of the best checkpoint. Raises InputError if there is none."""
  entries = read_best(job_dir)
  if not entries:
    raise InputError(
      f'--checkpoint best: {job_dir} has none; it is chosen by evaluations of the validation split '
      'while training with --train-on train'
    )
  return os.path.join(job_dir, BEST, entries[0]['checkpoint'])


def keep_best(job_dir: str, source: str, evaluation: Mapping[str, Any], count: int) -> bool:
  """Copies an evaluated checkpoint if it is among the `count` best; tells whether it is the best.

  best.json is written after the copy is complete, and checkpoints that it no longer names are
  removed after that: if the process is killed, every checkpoint that best.json names exists.

  The evaluation is as the program prints it, with 'accuracy', which ranks, and 'global_step'.
  Raises FileNotFoundError where the checkpoint was deleted during its evaluation.
  """
  name, folder = os.path.basename(source), os.path.join(job_dir, BEST)
  for path in files.matching(folder, '*.tmp'):  # A killed process was writing it.
    files.remove(path)
  entries = [entry for entry in read_best(job_dir) if entry['checkpoint'] != name]
  entries.append({**evaluation, 'checkpoint': name})
  # Among equals the earlier one stays first.
  ranked = sorted(entries, key=lambda entry: -entry['accuracy'])[:count]
  names = {entry['checkpoint'] for entry in ranked}
  if name not in names:
    return False
  files.make_folder(folder)
  # A checkpoint's index is deleted first: if it exists after all others, all was copied.
  for path in [*files_of(source), f'{source}.index']:
    files.copy(path, os.path.join(folder, os.path.basename(path)))
  content = files.json_text({**ranked[0], 'others': ranked[1:]}, indent=2)
  files.write_text(os.path.join(folder, BEST_NAME), content + '\n')
  for path in files.matching(folder, 'model.ckpt-*'):
    if _PART.sub('', os.path.basename(path)) not in names:
      files.remove(path)
  return ranked[0]['checkpoint'] == name
