"""Where a job runs and what it keeps."""

from __future__ import annotations

import dataclasses
import re

from cifar10.core.option import (
  Check,
  Options,
  above,
  at_least,
  between,
  is_address,
  is_command,
  is_pattern,
  option,
)

MOST_THREADS = 1024  # TensorFlow starts as many as it is told, and aborts where it cannot.
MOST_PROCESSES = 256
MOST_PROFILED = 100  # Steps: a trace of more is too large for what shows it.


def first_and_last(text: str) -> tuple[int, ...]:
  """'100:110' -> (100, 110); () where it is no range of steps that can be profiled."""
  numbers = re.fullmatch(r'([0-9]{1,10}):([0-9]{1,10})', text)
  first, last = map(int, numbers.groups()) if numbers else (0, 0)
  return (first, last) if 1 <= first <= last < first + MOST_PROFILED else ()


@dataclasses.dataclass(frozen=True)
class RunOptions(Options):
  """Where a job runs, what it keeps, and how the workers of a cluster share an update."""

  job_dir: str = option(
    dataclasses.MISSING,
    'checkpoints, summaries and exports; training resumes what it holds; a folder, or a URL as '
    'gs://bucket/job',
  )
  data_dir: str | None = option(
    None, 'the folder, or the URL, that generate_cifar10_tfrecords.py filled'
  )
  source_processes: int = option(
    1,
    'processes that run --source, each its shard; 0 or 1: the training process does',
    check=between(0, MOST_PROCESSES),
    part='source',
  )
  data_service: str | None = option(
    None,
    'the dispatcher whose data workers make the training batches (docs/clusters.md)',
    check=is_address(),
    metavar='HOST:PORT',
    part='data_service',
  )
  subset: str | None = option(
    None,
    'the split to evaluate (default: on the way validation; at the end eval, the test set)',
    choices=('train', 'validation', 'eval'),
  )
  checkpoint: str | None = option(
    None, 'what to evaluate, predict with or export; best: the one in best/ (default: the latest)'
  )
  use_ema: bool = option(
    False,
    'evaluate, predict with and export the average of the weights that --ema-decay keeps, not the '
    'last ones',
    part='ema',
  )
  warm_start_from: tuple[str, ...] = option(
    (),
    "start a new job with another's variables: a job dir, its best/, a checkpoint or an .npz; can "
    'be given several times, and later ones win',
    metavar='PATH',
    part='warm_start',
  )
  warm_start_skip: str | None = option(
    None,
    'a regular expression; variables whose names match start as without --warm-start-from',
    check=is_pattern(),
    metavar='REGEX',
    part='warm_start',
  )
  format: str = option(
    'saved_model',
    'what to export: for servers, for other runtimes (onnx needs requirements-onnx.txt), or to '
    'train on (keras)',
    choices=('saved_model', 'onnx', 'keras'),
  )
  export_batch: int | None = option(
    None, 'images in each call of an exported network (default: any number)', check=at_least(1)
  )
  eval_every_steps: int = option(1000, 'global steps between two evaluations', check=at_least(1))
  save_every_steps: int | None = option(
    None, 'global steps between two checkpoints (default: when evaluating)', check=at_least(1)
  )
  keep_checkpoints: int = option(5, 'how many of the last ones to keep', check=at_least(1))
  keep_best: int = option(
    1,
    'how many of the most accurate ones on the validation split to keep, under best/',
    check=between(0, 1000),
  )
  stop_at_accuracy: float | None = option(
    None,
    'end training when the validation split has this accuracy',
    check=between(0, 1),
    part='early_stopping',
  )
  stop_without_gain: int | None = option(
    None,
    'end training after so many evaluations in a row without a better one',
    check=at_least(1),
    part='early_stopping',
  )
  max_minutes: float | None = option(
    None,
    'end training after so many minutes, those of earlier runs of the job included',
    check=above(0, ' minutes'),
    part='early_stopping',
  )
  on_evaluation: str | None = option(
    None,
    'a command to run after every evaluation, without a shell; it has CIFAR10_ACCURACY, '
    'CIFAR10_STEP and others in its environment',
    check=is_command(),
    metavar='COMMAND',
    part='on_evaluation',
  )
  log_every: float = option(
    10.0, 'seconds between two lines about progress', check=above(0, ' seconds')
  )
  histograms: bool = option(
    False, 'show TensorBoard histograms of weights and gradients, every hundred steps'
  )
  profile_steps: str | None = option(
    None,
    'trace the global steps from FIRST to LAST, as 100:110, into JOB/profile/, and log the '
    'costliest operations',
    check=Check(
      lambda text: bool(first_and_last(text)),
      f'must be FIRST:LAST, as 100:110: at most {MOST_PROFILED} global steps, counted from 1',
    ),
    metavar='FIRST:LAST',
    part='profile',
  )
  debug_shell: bool = option(
    False,
    'let `control JOB shell` open a Python shell in the process that trains',
    part='shell',
  )
  num_gpus: int | None = option(
    None,
    'towers on GPUs; 0: the CPU (default: as many as are visible)',
    check=at_least(0, ' (the CPU)'),
  )
  num_cpu_towers: int = option(1, 'towers on virtual CPUs, without a GPU', check=between(1, 1024))
  variable_strategy: str = option(
    'CPU', 'where variables live; GPU: spread over the GPUs by size', choices=('CPU', 'GPU')
  )
  data_format: str | None = option(
    None,
    'the order of the axes of activations (default: channels_first on GPUs, else channels_last)',
    choices=('channels_first', 'channels_last'),
  )
  num_intra_threads: int = option(
    0, 'threads of one operation; 0: all cores', check=between(0, MOST_THREADS)
  )
  num_inter_threads: int = option(
    0, 'operations at a time; 0: as many as cores', check=between(0, MOST_THREADS)
  )
  log_device_placement: bool = option(False, 'log where each operation runs')
  distribute: str | None = option(
    None,
    'all-reduce in place of parameter servers: on one host, or between chief and workers',
    choices=('mirrored', 'multi_worker_mirrored'),
    part='all_reduce',
  )
  sync: bool = option(
    False,
    "make each update from the mean of all workers' gradients; one process ignores it",
    part='sync',
  )
  deterministic: bool = option(
    False,
    'the same seed on the same kind of machine makes the same network, bit for bit; workers of a '
    'cluster need --sync',
  )
  backup_workers: int = option(
    0,
    'with --sync, updates go on without the last N workers',
    check=at_least(0),
    part='sync',
  )
  start_timeout: float = option(
    600.0,
    "seconds after which a process ends if a cluster's task that it needs has not come up, or back",
    check=above(0, ' seconds'),
    part='liveness',
  )
  evaluator_patience: float = option(
    600.0,
    'seconds for which an evaluator waits for a chief that is gone',
    check=above(0, ' seconds'),
    part='follow',
  )
  num_workers: int = option(1, 'ignored: TF_CONFIG says how many there are')
