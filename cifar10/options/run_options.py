"""Options of where a job runs and what it saves; plan.py refuses what does not fit together."""

import dataclasses

from cifar10.core.errors import InputError
from cifar10.core.option import FUNCTION, POSITIVE, Check, Options, at_least, between, option

PRETRAINED = ('resnet20', 'fast94')  # The included trained networks (job/pretrained.py).
# TensorFlow starts as many threads as it is told to, and aborts if it cannot.
_THREADS = between(0, 1024)


@dataclasses.dataclass(frozen=True)
class RunOptions(Options):
  """The options of where a job runs, what it saves, and how a cluster's workers share updates."""

  job_dir: str = option('', 'folder or URL of the job: new, or to be resumed, evaluated, exported')
  data_dir: str | None = option(None, 'folder or URL of what generate_cifar10_tfrecords.py made')
  subset: str | None = option(
    None,
    'the split to evaluate (default: on the way validation, or eval where that is trained on; at '
    'the end eval, the test set)',
    choices=('train', 'validation', 'eval'),
  )
  checkpoint: str | None = option(
    None,
    'what to evaluate, predict with or export; best: the one in best/ (default: the latest)',
    Check(bool, 'must be the name of a checkpoint'),
  )
  pretrained: str | None = option(
    None, 'an included network in place of a job; a new --job-dir becomes one', choices=PRETRAINED
  )
  use_ema: bool = option(False, 'evaluate, predict and export the average that --ema-decay keeps')
  warm_start_from: tuple[str, ...] = option(
    (),
    'initialise a new job with the variables of another: a job dir, its best/, a checkpoint, an '
    '.npz file, a --pretrained network; of several, later ones win',
    metavar='PATH',
  )
  format: str = option(
    'saved_model', 'the export format; onnx needs tf2onnx', choices=('saved_model', 'onnx', 'keras')
  )
  eval_every_steps: int = option(1000, 'global steps between two evaluations', at_least(1))
  save_every_steps: int | None = option(
    None,
    'global steps between two checkpoints (default: --eval-every-steps; without an evaluator '
    'task also ten minutes after the last one)',
    at_least(1),
  )
  keep_checkpoints: int = option(5, 'number of latest checkpoints to keep', at_least(1))
  keep_best: int = option(1, 'checkpoints in best/, the best on the validation split', at_least(0))
  stop_at_accuracy: float | None = option(None, 'end at this validation accuracy', between(0, 1))
  stop_without_gain: int | None = option(
    None, 'end training after so many evaluations without a higher accuracy', at_least(1)
  )
  max_minutes: float | None = option(None, 'end after so many minutes of all runs', POSITIVE)
  callback: tuple[str, ...] = option(
    (),
    'a Python function that makes a callback, as package.module:function; can be given several '
    'times (docs/python.md)',
    Check(lambda names: all(map(FUNCTION.accepts, names)), 'must be package.module:function'),
    metavar='MODULE:FUNCTION',
  )
  log_every: float = option(10.0, 'seconds between two progress lines in the log', POSITIVE)
  num_gpus: int | None = option(None, 'GPUs, a tower each; 0: the CPU (default: all)', at_least(0))
  num_cpu_towers: int = option(1, 'towers on virtual CPUs, where no GPU is used', between(1, 1024))
  variable_strategy: str | None = option(
    None,
    'device of the variables; GPU: over the GPUs by size (default: GPU for a single one, else CPU)',
    choices=('CPU', 'GPU'),
  )
  data_format: str | None = option(
    None,
    'axis order of activations (default: channels_first on GPUs, else channels_last)',
    choices=('channels_first', 'channels_last'),
  )
  num_intra_threads: int = option(0, 'threads within one operation; 0: one per core', _THREADS)
  num_inter_threads: int = option(0, 'operations at the same time; 0: one per core', _THREADS)
  log_device_placement: bool = option(False, 'log the device of each operation')
  distribute: str | None = option(
    None,
    'multi_worker_mirrored: all-reduce between chief and workers in place of parameter servers',
    Check(
      lambda word: word == 'multi_worker_mirrored',
      'must be multi_worker_mirrored; mirrored is gone since version 2: the devices of one host '
      'are towers, see --num-gpus and --num-cpu-towers',
    ),
    metavar='multi_worker_mirrored',
  )
  sync: bool = option(False, "update by the mean of all workers' gradients, in a cluster")
  deterministic: bool = option(False, 'one seed, one network bit for bit; clusters need --sync')
  backup_workers: int = option(0, 'late workers that updates leave out', at_least(0), needs='sync')
  start_timeout: float = option(600.0, 'seconds to wait for a task to come up or back', POSITIVE)

  def check(self) -> None:
    if not (self.job_dir or self.pretrained):
      raise InputError('--job-dir is missing; name a folder')
