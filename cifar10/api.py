"""The Python API: `import cifar10`, then `cifar10.train` and other calls; and what runs a plan.

Each call does what the command does in that mode, with the same options: --train-steps is
`train_steps`. Where the command refuses something, the call raises `InputError`.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import generate_cifar10_tfrecords
from cifar10 import plan
from cifar10.callbacks import registry
from cifar10.cluster import parameter_server, roles
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.signals import SignalMonitor
from cifar10.core import files, logs, user_code
from cifar10.core.errors import InputError, SomeFailedError, Terminated
from cifar10.core.option import FUNCTION, as_text, declarations, flag_of
from cifar10.exporters import export as exporting
from cifar10.exporters import predict as predicting
from cifar10.job import run as job_run
from cifar10.options import flags
from cifar10.options.hparams import Augmentation, HParams
from cifar10.options.run_options import PRETRAINED, RunOptions
from cifar10.training import dry_run, estimator, evaluator, experiment

Result = dict[str, Any]  # What a command prints as one JSON object.
# Each flag of these adds one value.
_REPEATED = {
  each.name for each in declarations(flags.Command, RunOptions) if each.kind == tuple[str, ...]
}

# The options in whose place a call may give the object itself.
_DOORS = (
  'network',
  *(each.name for each in declarations(HParams, Augmentation) if each.check is FUNCTION),
)


def convert(data_dir: Any = '.', **options: Any) -> Result:
  """Makes record files where they are missing, as generate_cifar10_tfrecords.py with its options.

  Returns:
    What the command prints: data dir, name, source, the examples of each split, ...

  Raises:
    InputError: an option or a source is refused, or the folder holds other records.
  """
  if data_dir is None:
    raise InputError('data_dir is None; name a folder')
  given = {name: value for name, value in options.items() if value is not False}  # `force`.
  parsed = generate_cifar10_tfrecords.parse(_words({'data_dir': data_dir, **given}))
  logs.set_up()
  return generate_cifar10_tfrecords.generate(parsed)


def train(
  job_dir: Any,
  data_dir: Any,
  *,
  mode: str = 'train_and_evaluate',
  callbacks: Any = (),
  **options: Any,
) -> Result:
  """Trains a job, or goes on with it, and evaluates it at the end.

  Ctrl-C ends training in good order: the step is finished and saved.

  Returns:
    The last evaluation, as the command prints it: accuracy, loss, global_step, checkpoint, ...;
    with mode='train' the last step and its checkpoint.

  Args:
    job_dir: the job dir, new or not.
    data_dir: the folder of the record files.
    mode: 'train': without evaluations.
    callbacks: objects, called after those that --callback names.
    options: the command's, including `recipe` and `network`; `network` may also be a function or
      a family itself.

  Raises:
    InputError: an option is refused.
    CallbackError: a callback failed.
    KeyboardInterrupt: after Ctrl-C.
    Terminated: after SIGTERM or SIGHUP.
  """
  if mode not in ('train_and_evaluate', 'train'):
    raise InputError(f'mode is {mode!r}: it must be train_and_evaluate or train')
  [result] = _call(mode, {**options, 'job_dir': job_dir, 'data_dir': data_dir}, callbacks)
  return result


def make_experiment(
  job_dir: Any, data_dir: Any, *, callbacks: Any = (), **options: Any
) -> experiment.Experiment:
  """Returns the Estimator and the two specs of a job, for `tf.estimator.train_and_evaluate`.

    tf.estimator.train_and_evaluate(*cifar10.make_experiment('job', 'data', num_layers=20))

  trains as the command does, but hears no signals, and leaves the test set to you. The chief or a
  worker of a cluster sets TF_CONFIG before this call, which gives it the form that the Estimator
  needs; the other tasks run cifar10_main.py, because TensorFlow's own never end.

  Args:
    job_dir, data_dir, callbacks, options: as for `train`.

  Raises:
    InputError: an option is refused, or this process is no chief and no worker.
  """
  given = {**options, 'job_dir': job_dir, 'data_dir': data_dir}
  _, hparams, run_options, cluster = _plan('train_and_evaluate', given)
  if cluster.task_type in ('ps', 'evaluator'):
    raise InputError(
      f'TF_CONFIG names {cluster.name}, which this call cannot be; run cifar10_main.py'
    )
  own = registry.named_or_given(run_options.callback, callbacks)
  role = roles.Role(cluster, run_options)
  made = experiment.make_experiment(job_run.begin(hparams, run_options, role, own))
  if cluster.addresses:
    os.environ['TF_CONFIG'] = cluster.tf_config
  return made


def evaluate(job_dir: Any, data_dir: Any, *, callbacks: Any = (), **options: Any) -> Result:
  """Evaluates a job's latest checkpoint, on the test set unless `subset` names another split.

  Here as for `predict` and `load`, the name of a --pretrained network stands for a job dir.
  """
  [result] = _call('evaluate', {**options, 'job_dir': job_dir, 'data_dir': data_dir}, callbacks)
  return result


def predict(job_dir: Any, images: Any = (), **options: Any) -> estimator.Answers | list[Result]:
  """Classifies images by a job's network.

  Args:
    job_dir: a trained job, or 'resnet20' or 'fast94', which are included.
    images: uint8 [n, 32, 32, 3], or a list of the paths of files and folders; none with
      `subset`, which names a split.
    options: the command's.

  Returns:
    For an array, `Answers`; otherwise what the command prints: an object for each image, or with
      `out` one, which says how many are unreadable.
  """
  if isinstance(images, np.ndarray):
    with load(job_dir, **options) as network:
      return network(images)
  listed = [images] if isinstance(images, (str, os.PathLike)) else list(images)
  if not all(isinstance(each, (str, os.PathLike)) for each in listed):
    raise InputError('images must be paths, or one array uint8 [n, 32, 32, 3]')
  return _call('predict', {**options, 'job_dir': job_dir, 'images': listed})


def export(job_dir: Any, **options: Any) -> Result:
  """Exports a job's network in the format that `format` names; its path stands under that name."""
  [result] = _call('export', {**options, 'job_dir': job_dir})
  return result


def load(job_dir: Any, **options: Any) -> estimator.Predictor:
  """Loads a job's network, to be called with images; options as for `predict`."""
  if options.get('out') is not None:
    raise InputError('out is for images in files; it cannot take the answers to an array')
  planned = _plan('predict', {**options, 'job_dir': job_dir, 'images': ['of an array']})
  return estimator.load(job_run.begin(planned.hparams, planned.options))


def results(
  planned: plan.Plan, callbacks: Any = (), monitor: SignalMonitor | None = None
) -> Iterator[Result]:
  """Runs a plan, for the command, too; yields the JSON objects to print, the result last.

  `callbacks` come after those of --callback; `monitor` is a single process's.
  """
  command, hparams, options, cluster = planned
  own = registry.named_or_given(options.callback, callbacks)
  watches_others = cluster.addresses and not command.dry_run
  role = roles.Role(cluster, options, None if watches_others else monitor or SignalMonitor())
  # Only the main thread can receive signals; prediction and export have no step to finish.
  hears = threading.current_thread() is threading.main_thread()
  ends_when_told = hears and command.mode not in ('predict', 'export')
  with (
    files.naming_errors('--job-dir', options.job_dir),
    role.monitor if ends_when_told else contextlib.nullcontext(),
  ):
    yield from _results(command, job_run.begin(hparams, options, role, own))


def _results(command: flags.Command, run: job_run.Run) -> Iterable[Result]:
  """Runs one mode, or one task's part of it."""
  if command.dry_run:
    return [dry_run.dry_run(run, with_evaluations=command.mode == 'train_and_evaluate')]
  if run.cluster.task_type == 'ps' and isinstance(run.role.monitor, LivenessMonitor):
    return [parameter_server.serve(run.cluster, run.role.monitor)]
  if run.cluster.task_type == 'evaluator':
    return [evaluator.follow(run)]
  if command.mode == 'predict':
    return predicting.run(run, command.images, command.out or '')
  modes: dict[str, Callable[[job_run.Run], Result]] = {
    'train_and_evaluate': experiment.train_and_evaluate,
    'train': experiment.train,
    'evaluate': evaluator.evaluate_once,
    'export': exporting.export,
  }
  return [modes[command.mode](run)]


_running: list[str] = []  # The modes of the calls that are under way.


def _call(mode: str, given: Mapping[str, Any], callbacks: Any = ()) -> Any:
  """Runs one mode and returns all its results."""
  planned = _plan(mode, given)
  _running.append(mode)
  monitor = SignalMonitor(kills_after_ctrl_c=False)  # It may be a notebook's process.
  found: list[Result] = []
  try:
    with contextlib.suppress(SomeFailedError):  # The results have the errors, or their number.
      for result in results(planned, callbacks, monitor):
        found.append(result)
  except Terminated as end:
    if str(end) == 'SIGINT':
      raise KeyboardInterrupt from None
    raise
  finally:
    _running.pop()
    if not _running:  # Each writer has a thread; a training's callback may call, too.
      tf.compat.v1.summary.FileWriterCache.clear()
  if monitor.heard == 'SIGINT':
    raise KeyboardInterrupt
  return found


def _plan(mode: str, options: Mapping[str, Any]) -> plan.Plan:
  """Checks these options as the command would be given them; raises InputError."""
  given = dict(options)
  named = str(given['job_dir'])
  if named in PRETRAINED and not (mode.startswith('train') or files.exists(named)):
    given['pretrained'] = str(given.pop('job_dir'))
  objects = {
    name: user_code.given(given[name])
    for name in _DOORS
    if not isinstance(given.get(name), (str, type(None)))
  }
  if isinstance(objects.get('network'), user_code.Given):
    raise InputError('network is found again by no name; put it at the top of a module')
  parsed = flags.parse('', _words({**given, **objects, 'mode': mode}))
  planned = plan.check({**parsed, **objects})
  logs.set_up(planned.command.verbose)
  return planned


def _words(options: Mapping[str, Any]) -> list[str]:
  """Returns the words of a command line with these options; without those that are None."""
  words = []
  for name, value in options.items():
    flag = flag_of(name)
    plain = value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value
    several = name in _REPEATED and isinstance(plain, (list, tuple))
    for each in plain if several else [plain]:
      text = os.fspath(each) if isinstance(each, os.PathLike) else as_text(each)
      if each is not None:
        words.append(flag if each is True else f'{flag}={text}')
  return words
