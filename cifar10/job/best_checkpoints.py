"""JOB/best/: the best checkpoints, and best.json, which has the evaluations that chose them.

best.json = {"accuracy": 0.93, "global_step": 4000, ..., "checkpoint": "model.ckpt-4000",
             "others": [the next best evaluation, ...]}
"""

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from cifar10.core import files
from cifar10.core.errors import InputError

FOLDER = 'best'
NAME = 'best.json'

Entry = dict[str, Any]  # An evaluation as the program prints it.


def read(job_dir: str) -> list[Entry]:
  """As `read_folder` for JOB/best."""
  return read_folder(os.path.join(job_dir, FOLDER))


def read_folder(folder: str) -> list[Entry]:
  """Returns the evaluations of the best checkpoints, best first; [] if there are none.

  Raises:
    InputError: best.json is damaged.
  """
  path = os.path.join(folder, NAME)
  try:
    best = json.loads(files.read_text(path))
    entries = [best, *best.pop('others')]
    for entry in entries:
      _check(entry)
    return entries
  except FileNotFoundError:
    return []
  except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
    raise InputError(
      f'{path} is damaged ({error!r}); remove the folder, and the next evaluation chooses again'
    ) from None


def _check(entry: Entry) -> None:
  """Raises ValueError, KeyError or TypeError if it lacks a checkpoint, an accuracy or a step."""
  name, accuracy, step = entry['checkpoint'], entry['accuracy'], entry['global_step']
  if not isinstance(name, str) or os.path.basename(name) != name or not name:
    raise ValueError(f'checkpoint is {name!r}')
  if type(accuracy) not in (int, float) or not 0 <= accuracy <= 1:
    raise ValueError(f'accuracy is {accuracy!r}')
  if type(step) is not int:
    raise ValueError(f'global_step is {step!r}')


def checkpoint(job_dir: str) -> str:
  """Returns the path of the best checkpoint. Raises InputError if there is none."""
  entries = read(job_dir)
  if not entries:
    raise InputError(
      f'--checkpoint best: {job_dir} has none; it is chosen by evaluations of the validation split '
      'while training with --train-on train'
    )
  return os.path.join(job_dir, FOLDER, entries[0]['checkpoint'])


def keep(
  job_dir: str, source: str, evaluation: Mapping[str, Any], count: int, by: str = 'accuracy'
) -> bool:
  """Copies an evaluated checkpoint if it is among the `count` best; tells whether it is the best.

  best.json is written after the copy is complete, and checkpoints that it no longer names are
  removed after that: if the process is killed, every checkpoint that best.json names exists.

  The evaluation is as the program prints it, with 'accuracy' and 'global_step'; `by` names the
  number that ranks: an accuracy, or a loss, of which the lowest is best.

  Raises:
    FileNotFoundError: the checkpoint was deleted during its evaluation.
    OSError: the folder cannot be written.
  """
  folder = os.path.join(job_dir, FOLDER)
  name = os.path.basename(source)
  before = [entry for entry in read(job_dir) if entry['checkpoint'] != name]
  ranked = sorted(  # Among equals the earlier one stays first.
    [*before, {**evaluation, 'checkpoint': name}], key=lambda entry: _rank(entry, by)
  )[:count]
  if all(entry['checkpoint'] != name for entry in ranked):
    return False
  files.make_folder(folder)
  # A checkpoint's index is deleted first: if it exists now, all was copied.
  of_source = files.matching(os.path.dirname(source), f'{name}.[dm]*')
  for path in [*of_source, f'{source}.index']:
    if path.endswith(('.index', '.meta')) or '.data-' in path:
      files.copy(path, os.path.join(folder, os.path.basename(path)))
  best, *others = ranked
  content = files.json_text({**best, 'others': others}, indent=2)
  files.write_text(os.path.join(folder, NAME), content + '\n')
  named = tuple(entry['checkpoint'] + '.' for entry in ranked)
  for path in files.matching(folder, 'model.ckpt-*'):
    if not os.path.basename(path).startswith(named):
      files.remove(path)
  return best['checkpoint'] == name


def _rank(entry: Entry, by: str) -> float:
  """Returns the sort key, least is best; infinite for an old entry that lacks the number."""
  value = entry.get(by)
  if not isinstance(value, (int, float)) or math.isnan(value):
    return math.inf
  return -value if by.startswith('accuracy') else value
