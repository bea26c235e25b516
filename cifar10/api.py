"""The Python API: `import cifar10`, then `cifar10.train` and other calls; and what runs a plan.

Each call does what the command does in that mode, with the same options: --train-steps is
`train_steps`. Where the command refuses something, the call raises `InputError`.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import generate_cifar10_tfrecords
from cifar10 import plan
from cifar10.callbacks import registry
from cifar10.cluster import parameter_server, roles
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.signals import SignalMonitor
from cifar10.core import files, logs, option, user_code
from cifar10.core.errors import InputError, SomeFailedError, Terminated
from cifar10.core.logs import log
from cifar10.exporters import export as exporting
from cifar10.exporters import predict as predicting
from cifar10.job import run as job_run
from cifar10.job.run import Run
from cifar10.networks import own_network
from cifar10.options import families, flags, gone
from cifar10.options.hparams import Augmentation, HParams
from cifar10.options.run_options import PRETRAINED, RunOptions
from cifar10.plan import Plan
from cifar10.training import dry_run, evaluator, experiment, follow
from cifar10.training.estimator import Answers, Predictor, with_checkpoint
from cifar10.training.experiment import Experiment

# The flags of a command line that are not declared options.
_OF_COMMANDS = {'network', 'recipe', 'out', 'verbose', 'dry_run'}


Result = dict[str, Any]  # What a command prints as one JSON object.


def convert(data_dir: Any = '.', **options: Any) -> Result:
  """Makes record files where they are missing, as generate_cifar10_tfrecords.py with its options.

  Returns:
    The manifest, as the command prints it: name, source, the examples of each split, ...

  Raises:
    InputError: an option or a source is refused, or the folder holds other records.
  """
  if data_dir is None:
    raise InputError('data_dir is None; name a folder')
  command = generate_cifar10_tfrecords  # Whose parser has the checks.
  _check_names(options, set(vars(command.parse([]))))
  words = []
  for name, value in {'data_dir': data_dir, **options}.items():
    flag, plain = option.flag_of(name), _plain(value)
    if plain is not None and plain is not False:
      words.append(flag if plain is True else f'{flag}={option.as_text(plain)}')
  parsed = command.parse(words)
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  _show_log()
  return command.generate(parsed)


def train(
  job_dir: Any, data_dir: Any, *, mode: str = 'train_and_evaluate', **options: Any
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
    options: the command's, including `recipe` and `network`; `network` may also be a function or
      a family itself, and `callbacks` a list of objects.

  Raises:
    InputError: an option is refused.
    CallbackError: a callback failed.
    NetworkError: an operation of a network of your own failed.
    KeyboardInterrupt: after Ctrl-C.
    Terminated: after SIGTERM or SIGHUP.
  """
  if mode not in ('train_and_evaluate', 'train'):
    raise InputError(f'mode is {mode!r}: it must be train_and_evaluate or train')
  [result] = _call(mode, {**options, 'job_dir': job_dir, 'data_dir': data_dir})
  return result


def make_experiment(job_dir: Any, data_dir: Any, **options: Any) -> Experiment:
  """Returns the Estimator and the two specs of a job, for `tf.estimator.train_and_evaluate`.

    tf.estimator.train_and_evaluate(*cifar10.make_experiment('job', 'data', num_layers=20))

  trains and evaluates on the way as the command does: it takes the job's lock, writes config.json,
  resumes, and records an early end. The command also evaluates the test set at the end, and hears
  signals: here Ctrl-C ends a training without a checkpoint. As the chief or a worker of a cluster,
  set TF_CONFIG before this call, which gives it the form that the Estimator needs; parameter
  servers and evaluators run cifar10_main.py, because TensorFlow's own never end.

  Args:
    job_dir, data_dir, options: as for `train`.

  Raises:
    InputError: an option is refused, or this process is no chief and no worker.
  """
  callbacks = options.pop('callbacks', None) or ()
  given = {**options, 'job_dir': job_dir, 'data_dir': data_dir}
  _, hparams, run_options, cluster = plan.check(_command('train_and_evaluate', given))
  if cluster.task_type in ('ps', 'evaluator'):
    raise InputError(
      f'TF_CONFIG names {cluster.name}, which this call cannot be; run cifar10_main.py'
    )
  own = registry.named_or_given(run_options.callback, callbacks)
  role = roles.choose(cluster, run_options)
  made = experiment.make_experiment(job_run.begin(hparams, run_options, role, own))
  if cluster.addresses:
    os.environ['TF_CONFIG'] = cluster.tf_config
  return made


def evaluate(job_dir: Any, data_dir: Any, **options: Any) -> Result:
  """Evaluates a job's latest checkpoint, on the test set unless `subset` names another split.

  Here as for `predict` and `load`, the name of a --pretrained network stands for a job dir.
  """
  [result] = _call('evaluate', {**options, 'job_dir': job_dir, 'data_dir': data_dir})
  return result


def predict(job_dir: Any, images: Any = (), **options: Any) -> Answers | list[Result]:
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
  is_one = isinstance(images, (str, os.PathLike)) or not isinstance(images, Iterable)
  listed = [images] if is_one else list(images)
  if not all(isinstance(each, (str, os.PathLike)) for each in listed):
    raise InputError('images must be paths, or one array uint8 [n, 32, 32, 3]')
  return _call('predict', {**options, 'job_dir': job_dir}, list(map(_plain, listed)))


def export(job_dir: Any, **options: Any) -> Result:
  """Exports a job's network in the format that `format` names; its path stands under that name."""
  [result] = _call('export', {**options, 'job_dir': job_dir})
  return result


def load(job_dir: Any, **options: Any) -> Network:
  """Loads a job's network, to be called with images; options as for `predict`."""
  return Network({**options, 'job_dir': job_dir})


class Network:
  """A trained network in a session that stays open until `close` or the end of its context."""

  def __init__(self, options: Mapping[str, Any]):
    """`options`: with job_dir."""
    if options.get('out') is not None:
      raise InputError('out is for images in files; it cannot take the answers to an array')
    planned = plan.check(_command('predict', options, ['of an array']))
    _show_log(planned.command.verbose)
    run = job_run.begin(planned.hparams, planned.options)
    self.classes = run.data.classes
    self._is_closed = False
    self._predictor = Predictor(run)
    try:
      self.checkpoint = with_checkpoint(run, self._predictor.restore)
    except BaseException:
      self._predictor.close()
      raise

  def __call__(self, images: np.ndarray) -> Answers:
    """Classifies an array or tensor uint8 [n, 32, 32, 3]; raises InputError for anything else."""
    if self._is_closed:
      raise InputError('the network is closed; load it again')
    return self._predictor(images)

  def close(self) -> None:
    """Closes the session; the network can no longer be called."""
    self._is_closed = True
    self._predictor.close()

  def __enter__(self) -> Network:
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()


def results(
  planned: Plan, callbacks: Sequence[Any] = (), monitor: SignalMonitor | None = None
) -> Iterator[Result]:
  """Runs a plan, for the command, too; yields the JSON objects to print, the result last.

  Args:
    planned: a checked command.
    callbacks: the user's, beside those of --callback.
    monitor: of a single process, in place of a SignalMonitor.
  """
  command, hparams, options, cluster = planned
  own = registry.named_or_given(options.callback, callbacks)
  watches_others = cluster.addresses and not command.dry_run
  role = roles.choose(cluster, options, None if watches_others else monitor or SignalMonitor())
  # Only the main thread can receive signals; prediction and export have no step to finish.
  hears = threading.current_thread() is threading.main_thread()
  ends_when_told = hears and command.mode not in ('predict', 'export')
  with (
    own_network.naming_failures(hparams.family),
    files.naming_errors('--job-dir', options.job_dir),
    role.monitor if ends_when_told else contextlib.nullcontext(),
  ):
    yield from _results(command, job_run.begin(hparams, options, role, own))


def _results(command: flags.Command, run: Run) -> Iterable[Result]:
  """Runs one mode, or one task's part of it."""
  if command.dry_run:
    is_whole = command.mode == 'train_and_evaluate'
    return [dry_run.dry_run(run, with_evaluations=is_whole)]
  if run.cluster.task_type == 'ps' and isinstance(run.monitor, LivenessMonitor):
    return [parameter_server.serve(run.cluster, run.monitor)]
  if run.cluster.task_type == 'evaluator':
    return [follow.follow(run)]
  if command.mode == 'predict':
    return predicting.run(run, command.images, command.out)
  modes: dict[str, Callable[[Run], Result]] = {
    'train_and_evaluate': experiment.train_and_evaluate,
    'train': experiment.train,
    'evaluate': evaluator.evaluate_once,
    'export': exporting.export,
  }
  return [modes[command.mode](run)]


_running: list[str] = []  # The modes of the calls that are under way.


def _call(mode: str, given: dict[str, Any], images: Sequence[str] = ()) -> Any:
  """Runs one mode and returns all its results."""
  callbacks = given.pop('callbacks', None) or ()
  if callbacks and mode in ('predict', 'export'):
    raise InputError(f'callbacks hear of training and evaluation, not of {mode}; leave them out')
  planned = plan.check(_command(mode, given, images))
  _show_log(planned.command.verbose)
  _running.append(mode)
  monitor = SignalMonitor(kills_after_ctrl_c=False)  # It may be a notebook's process.
  found: list[Result] = []
  try:
    for result in results(planned, callbacks, monitor):
      found.append(result)
  except SomeFailedError:  # The results have the errors, or with `out` their number.
    pass
  except Terminated as end:
    if end.heard == 'SIGINT':
      raise KeyboardInterrupt from None
    raise
  finally:
    _running.pop()
    if not _running:  # Each writer has a thread; a training's callback may call, too.
      tf.compat.v1.summary.FileWriterCache.clear()
  if monitor.heard == 'SIGINT':
    raise KeyboardInterrupt
  return found


def _show_log(verbose: bool = False) -> None:
  """Shows the command's log from the first call on, unless the user has configured it."""
  logging.getLogger('tensorflow').setLevel(logging.INFO if verbose else logging.ERROR)
  if not (log.handlers or log.level):
    log.addHandler(logs.AboveBars())
    log.setLevel(logging.INFO)
    log.propagate = False


def _command(mode: str, given: Mapping[str, Any], images: Sequence[str] = ()) -> flags.Command:
  """Returns the command for these options; raises InputError for invalid ones."""
  values = {name: _plain(value) for name, value in given.items() if value is not None}
  if values.get('job_dir') in PRETRAINED and not (
    mode.startswith('train') or files.exists(values['job_dir'])
  ):
    values['pretrained'] = values.pop('job_dir')
  for name in ('network', 'source', 'validation_source'):
    if name in values and not isinstance(values[name], str):
      values[name] = user_code.given(given[name])
  network = values.get('network', families.DEFAULT)
  if isinstance(network, user_code.Given):
    raise InputError(
      f'network is a {network}, which cannot be found again by its name; put a function, or a '
      'subclass of cifar10.Family, at the top of a module'
    )
  if values.get('recipe', flags.DEFAULT_RECIPE) not in families.RECIPES:
    listed = ', '.join(families.RECIPES)
    raise InputError(f'--recipe is {values["recipe"]!r:.60}: it must be one of {listed}')
  own = [families.find(network)] if families.is_known(network) else []
  known = option.names(RunOptions, HParams, Augmentation, *families.BUILT_IN.values(), *own)
  _check_names(values, known | _OF_COMMANDS)
  for name in ('callback', 'warm_start_from'):  # One of them alone will do.
    if isinstance(values.get(name), str):
      values[name] = (values[name],)
  defaults = {'mode': mode, 'recipe': None, 'dry_run': False, 'verbose': False}
  return flags.command_of({**defaults, 'images': list(images), **values})


def _plain(value: Any) -> Any:
  """Returns the value as a command line would give it: text for paths, tuples for lists."""
  if isinstance(value, (np.generic, np.ndarray)):
    return _plain(value.tolist())
  if isinstance(value, (list, tuple)):
    return tuple(map(_plain, value))
  plain = os.fspath(value) if isinstance(value, os.PathLike) else value
  if isinstance(plain, str) and '\0' in plain:
    raise InputError(f'{plain!r:.60} has a character NUL; take it out')
  return plain


def _check_names(given: Iterable[str], known: set[str]) -> None:
  """Raises InputError for a name of no option."""
  for name in set(given) - known:
    gone.refuse([option.flag_of(name)])
    nearest = difflib.get_close_matches(name, sorted(known), 1, 0)
    raise InputError(f'there is no option {name}; the nearest is {nearest[0]}')
