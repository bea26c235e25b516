"""The program from Python: `import cifar10`, and then `cifar10.train` and the like.

Each call does what the command does in that mode, with the same options: --train-steps is
`train_steps`. What the command refuses is an `InputError` here.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from cifar10 import modes
from cifar10.cluster.signals import SignalMonitor
from cifar10.core import lazy_tf, logs, option, parts
from cifar10.core.errors import InputError, SomeFailedError, Terminated
from cifar10.core.logs import log
from cifar10.data.augmentation import Augmentation
from cifar10.networks import registry
from cifar10.options import flags
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions

# What a command line has beside declared options.
_OF_COMMANDS = {'network', 'recipe', 'verbose', 'dry_run'}


class Evaluated(TypedDict, total=False):
  """One checkpoint on one split, as the command prints it."""

  accuracy: float
  accuracy_without_tta: float
  accuracy_top5: float
  loss: float
  cross_entropy: float
  accuracy_by_class: dict[str, float]
  global_step: int
  examples: int
  subset: str
  checkpoint: str
  weights: str
  ended_by: str  # Of a training.


class Converted(TypedDict, total=False):
  """Record files, as the command prints it; what else tells their source among it."""

  data_dir: str
  name: str
  source: str
  num_classes: int
  examples: dict[str, int]
  unreadable: int


# With the key 'class', which is no name in Python.
Predicted = TypedDict(
  'Predicted',
  {'file': str, 'class': str, 'probabilities': dict[str, float], 'error': str},
  total=False,
)


class Exported(TypedDict, total=False):
  """An export: its path under the name of its format, and what it was made from."""

  saved_model: str
  onnx: str
  keras: str
  checkpoint: str
  global_step: int
  network: str
  weights: str
  data_set: str
  classes: list[str]
  accuracy: dict[str, float]
  dtype: str
  tta: str
  sha256_of_variables: str


class Answers(NamedTuple):
  """What a network says of n images."""

  classes: np.ndarray  # int64 [n]
  probabilities: np.ndarray  # float32 [n, classes]


def convert(data_dir: Any = '.', **options: Any) -> Converted:
  """Makes record files where they are missing, as generate_cifar10_tfrecords.py with its options.

  Raises:
    InputError: an option or a source is refused, or the folder holds other records.
  """
  command = importlib.import_module('generate_cifar10_tfrecords')  # Whose parser has the checks.
  words = []
  for name, value in {'data_dir': data_dir, **options}.items():
    flag, plain = '--' + name.replace('_', '-'), _plain(value)
    text = ','.join(map(str, plain)) if isinstance(plain, tuple) else str(plain)
    if plain is not None and plain is not False:
      words.append(flag if plain is True else f'{flag}={text}')
  found = command.parse(words)
  _check_names(options, vars(found))  # None is short for another.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  with logs.shown():
    return command.generate(found)


def train(
  job_dir: Any, data_dir: Any, *, mode: str = 'train_and_evaluate', **options: Any
) -> Evaluated:
  """Trains a job, or goes on with it, and evaluates it at the end.

  Ctrl-C ends it in good order: the step is finished and saved.

  Returns:
    The last evaluation; with mode='train' the last step and its checkpoint.

  Args:
    job_dir: the job's folder, new or not.
    data_dir: where the record files are.
    mode: 'train': nothing is evaluated.
    options: the command's, `recipe` and `network` among them; `network` may also be a function or
      a family itself, and `callbacks` a list of objects.

  Raises:
    InputError: an option is refused.
    CallbackError: one of the callbacks failed.
    KeyboardInterrupt: after Ctrl-C.
    Terminated: after SIGTERM.
  """
  if mode not in ('train_and_evaluate', 'train'):
    raise InputError(f'mode is {mode!r}: it must be train_and_evaluate or train')
  [result] = _call(mode, {**options, 'job_dir': job_dir, 'data_dir': data_dir})
  return result


def evaluate(job_dir: Any, data_dir: Any, **options: Any) -> Evaluated:
  """Evaluates a job's latest checkpoint, on the test set unless `subset` says another split."""
  [result] = _call('evaluate', {**options, 'job_dir': job_dir, 'data_dir': data_dir})
  return result


def predict(job_dir: Any, images: Any, **options: Any) -> Answers | list[Predicted]:
  """What a job's network says of images.

  Args:
    job_dir: of a trained job.
    images: uint8 [n, 32, 32, 3], or a list of the paths of files, folders or patterns.
    options: the command's.

  Returns:
    Of an array, `Answers`; of paths, an object for each file, as the command prints it.
  """
  if isinstance(images, np.ndarray):
    with load(job_dir, **options) as network:
      return network(images)
  paths = [
    os.fspath(path) for path in ([images] if isinstance(images, (str, os.PathLike)) else images)
  ]
  return _call('predict', {**options, 'job_dir': job_dir}, paths)


def export(job_dir: Any, **options: Any) -> Exported:
  """Writes a job's network for others to use, in the format that `format` says."""
  [result] = _call('export', {**options, 'job_dir': job_dir})
  return result


def load(job_dir: Any, **options: Any) -> Network:
  """A job's network, ready to be called; options as for `predict`."""
  return Network({**options, 'job_dir': job_dir})


class Network:
  """A trained network in a session that stays open until `close`, or the end of its context."""

  def __init__(self, options: Mapping[str, Any]):
    """`options`: job_dir among them."""
    plan = modes.check(_command('predict', options, ['of an array']))
    lazy_tf.import_tensorflow()
    with logs.shown(plan.command.verbose):
      self._build(plan)

  def _build(self, plan: modes.Plan) -> None:
    import tensorflow as tf  # noqa: PLC0415

    from cifar10.core.estimator import tf_estimator  # noqa: PLC0415
    from cifar10.training.process import Process  # noqa: PLC0415

    process = Process(plan.hparams, plan.options)
    self.classes = process.data.classes
    self.checkpoint = process.checkpoint()
    self._batch = plan.hparams.eval_batch_size
    estimator = process.estimator()
    with tf.Graph().as_default() as graph:
      tf.compat.v1.set_random_seed(plan.hparams.seed)
      tf.compat.v1.train.create_global_step()
      self._images = tf.compat.v1.placeholder(tf.uint8, [None, 32, 32, 3])
      predict = tf_estimator.ModeKeys.PREDICT
      spec = estimator.model_fn({'images': self._images}, None, predict, estimator.config)
      self._outputs = [spec.predictions['classes'], spec.predictions['probabilities']]
      scaffold = (spec.scaffold or tf.compat.v1.train.Scaffold()).finalize()
      self._session = tf.compat.v1.Session(graph=graph, config=process.session_config())
      scaffold.saver.restore(self._session, self.checkpoint)

  def __call__(self, images: np.ndarray) -> Answers:
    """Classifies uint8 images [n, 32, 32, 3]; raises InputError for others."""
    if getattr(images, 'dtype', None) != np.uint8 or images.shape[1:] != (32, 32, 3):
      said = f'{images.dtype} {list(images.shape)}' if hasattr(images, 'shape') else type(images)
      raise InputError(f'images are {said}; they must be an array uint8 [n, 32, 32, 3]')
    # An empty batch has answers, too; not every operation takes one.
    padded = images if len(images) else np.zeros([1, 32, 32, 3], np.uint8)
    batches = [padded[i : i + self._batch] for i in range(0, len(padded), self._batch)]
    answers = [self._session.run(self._outputs, {self._images: batch}) for batch in batches]
    classes, probabilities = (np.concatenate(each)[: len(images)] for each in zip(*answers))
    return Answers(classes, probabilities)

  def close(self) -> None:
    """Frees the session; nothing can be asked any more."""
    self._session.close()

  def __enter__(self) -> Network:
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()


def _call(mode: str, given: dict[str, Any], images: Sequence[str] = ()) -> Any:
  """One mode -> all its results; leaves the process as it was."""
  callbacks = given.pop('callbacks', None) or ()
  plan = modes.check(_command(mode, given, images))
  lazy_tf.import_tensorflow()
  import tensorflow as tf  # noqa: PLC0415

  monitor = _Monitor()
  results = []
  with logs.shown(plan.command.verbose):
    try:
      for result in modes.run(plan, callbacks, monitor):
        results.append(result)
    except SomeFailedError:  # Their results say so.
      pass
    except Terminated:
      if monitor.heard == 'SIGTERM':
        raise
    finally:  # Each writer has a thread.
      tf.compat.v1.summary.FileWriterCache.clear()
  if monitor.heard == 'SIGINT':
    raise KeyboardInterrupt
  return results


class _Monitor(SignalMonitor):
  """Ends a training by Ctrl-C as by SIGTERM; a second Ctrl-C acts at once."""

  def __enter__(self) -> Any:
    super().__enter__()
    self._interrupts_before = signal.signal(signal.SIGINT, self._hear)
    return self

  def __exit__(self, *exception: object) -> None:
    signal.signal(signal.SIGINT, self._interrupts_before)
    super().__exit__(*exception)

  def _hear(self, number: int, frame: Any) -> None:
    log.info('interrupted: finishing the step')
    self.stopping, self.heard = True, 'SIGINT'
    signal.signal(signal.SIGINT, self._interrupts_before)

  def _stop(self, number: signal.Signals) -> None:
    if number != signal.SIGINT:
      super()._stop(number)


def _command(mode: str, given: Mapping[str, Any], images: Sequence[str] = ()) -> flags.Command:
  """Options by name as what a command line asks for; raises InputError for what none can have."""
  values = {name: value for name, value in given.items() if value is not None}
  if 'network' in values:
    values['network'] = _place(values['network'])
  if values.get('recipe', flags.DEFAULT_RECIPE) not in registry.RECIPES:
    raise InputError(
      f'--recipe is {values["recipe"]!r}: it must be one of {", ".join(registry.RECIPES)}'
    )
  _check_names(values, _names(values.get('network', registry.DEFAULT)))
  listed = {each.name for each in option.declarations(RunOptions) if each.kind == tuple[str, ...]}
  values = {name: _plain(value) for name, value in values.items()}
  for name in listed & set(values):  # One of them alone will do.
    values[name] = (values[name],) if isinstance(values[name], str) else values[name]
  defaults = {'mode': mode, 'recipe': None, 'dry_run': False, 'verbose': False}
  return flags.command_of({**defaults, 'images': list(images), **values})


def _plain(value: Any) -> Any:
  """The value as a command line would give it: text for paths, tuples for lists."""
  if isinstance(value, (list, tuple)):
    return tuple(map(_plain, value))
  if isinstance(value, np.generic):
    return value.item()
  return os.fspath(value) if isinstance(value, os.PathLike) else value


def _place(network: Any) -> str:
  """The name of a family or a function of the user's, by which the job finds it again."""
  if isinstance(network, str):
    return network
  place = f'{getattr(network, "__module__", "")}:{getattr(network, "__qualname__", "")}'
  with contextlib.suppress(ImportError, AttributeError, ValueError):
    if parts.find(place) is network:
      return place
  raise InputError(
    f'network is {network!r:.60}, which cannot be found again by its name; put a function, or a '
    'subclass of cifar10.Family, at the top of a module'
  )


def _names(network: str) -> set[str]:
  """Of all options, those of this network among them."""
  own = [registry.FAMILIES[network]] if network in registry.FAMILIES else []
  declared = option.names(RunOptions, HParams, Augmentation, *registry.FAMILIES.values(), *own)
  return declared | _OF_COMMANDS


def _check_names(given: Iterable[str], known: Iterable[str]) -> None:
  """Raises InputError for a name of no option."""
  for name in set(given) - set(known):
    nearest = difflib.get_close_matches(name, sorted(known), 1, 0)
    raise InputError(f'there is no option {name}; the nearest is {nearest[0]}')
