"""One process of a job with what every mode needs: network, data, devices and its role."""

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from cifar10.cluster import roles
from cifar10.cluster.roles import Role
from cifar10.cluster.tasks import Cluster
from cifar10.core import files, sessions
from cifar10.core.errors import InputError, Terminated
from cifar10.core.logs import log
from cifar10.data import input_pipeline
from cifar10.data.python_source import PythonSource
from cifar10.job import best_checkpoints, checkpoints, job_config, unpack_pretrained
from cifar10.options import checks
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training import ema, feed, model_fn, network_size, placement, schedules
from estimator_again import estimator as tf_estimator


class Process:
  """One process of a job: its checked options, and the Estimators made from them.

  Attributes:
    hparams: the network and its optimization, with `dtype` resolved.
    options: the run's options.
    role: alone, or a task of a cluster.
    data: the data set that the network classifies.
    placement: the devices of towers and variables.
    strategy: of tf.distribute, or None.
  """

  def __init__(
    self,
    hparams: HParams,
    options: RunOptions,
    role: Role | None = None,
    own_callbacks: Sequence[Any] = (),
  ):
    """Checks devices and data set; writes nothing but the job of --pretrained.

    Without a role it is a single process. `own_callbacks` are of callbacks/own_callback.py.

    Raises:
      InputError: devices that cannot run, or another data set than the job's.
    """
    if options.deterministic:
      tf.config.experimental.enable_op_determinism()
    num_gpus = placement.num_gpus(options, len(tf.config.list_physical_devices('GPU')))
    self.role = role or Role(roles.ALONE, options)
    self.own_callbacks = own_callbacks
    self.hparams = placement.with_dtype(hparams, num_gpus)
    if options.pretrained:
      unpack_pretrained.unpack(options)
    self.data = job_config.described_data(options.job_dir, options.data_dir)
    self.options = options
    self.placement = placement.placement(options, num_gpus)
    self.strategy = self.role.strategy(self.placement.tower_devices)

  @property
  def final_split(self) -> str:
    """Returns the split of the last evaluation."""
    return self.options.subset or 'eval'

  @property
  def data_dir(self) -> str:
    """Returns the folder of the record files."""
    assert self.options.data_dir  # The command requires it in modes that read data.
    return self.options.data_dir

  @property
  def split_on_the_way(self) -> str:
    """Returns the split that is evaluated during training."""
    # Choosing by the test set would leak it; it is used only if no other split is left.
    return self.options.subset or ('validation' if self.hparams.train_on == 'train' else 'eval')

  def estimator(self, training: model_fn.Training | None = None) -> Any:
    """Returns the Estimator; only one for training knows the data and the other tasks."""
    cluster = self.role.cluster if training else roles.ALONE
    return tf_estimator.Estimator(
      model_fn.get_model_fn(
        self.hparams, self.placement, self.data, training, use_ema=self.options.use_ema
      ),
      config=self.run_config(cluster, self.strategy if training else None),
    )

  def run_config(self, cluster: Cluster, strategy: Any = None) -> Any:
    """Returns the Estimator's RunConfig for this task of a cluster, whose tasks all train."""
    with tf_config(cluster):
      return tf_estimator.RunConfig(
        model_dir=self.options.job_dir,
        tf_random_seed=self.hparams.seed,
        save_summary_steps=None,  # callbacks/summaries.py writes means of many steps instead.
        # The Estimator needs some number, but the trainer's savers save.
        save_checkpoints_steps=self.options.eval_every_steps if cluster.is_chief else None,
        save_checkpoints_secs=None,
        keep_checkpoint_max=self.options.keep_checkpoints,
        log_step_count_steps=None,  # Callbacks count steps, in examples.
        session_config=self.session_config(cluster),
        experimental_max_worker_delay_secs=0,  # By default worker i first sleeps 5 (i + 1) seconds.
        train_distribute=strategy,
      )

  def session_config(self, cluster: Any = roles.ALONE) -> Any:
    """Returns the ConfigProto of sessions: this machine's threads, and the visible tasks."""
    options = self.options
    return sessions.session_config(
      options.num_cpu_towers,
      options.num_intra_threads,
      options.num_inter_threads,
      options.log_device_placement,
      cluster.device_filters,
      num_gpus=self.placement.num_gpus,
      group_leader=cluster.group_leader,
      # In a cluster TensorFlow would join operations in bfloat16 into some that it can run in a
      # single process only.
      fuses=not (cluster.is_distributed and self.hparams.dtype == 'bfloat16'),
    )

  def eval_input_fn(self, split: str) -> Callable[[], Any]:
    """Returns an input function that reads each example of a split once."""
    size = self.hparams.eval_batch_size
    return lambda: input_pipeline.cut(self.held_out(split).one_pass(size), 1)

  def held_out(self, split: str) -> feed.Examples:
    """A split's examples: of its records, or of --validation-source."""
    if split == 'validation' and self.hparams.validation_source:
      return self._validation
    return input_pipeline.RecordDataset(self.data_dir, split)

  @functools.cached_property
  def _validation(self) -> PythonSource:
    name = self.hparams.validation_source
    assert name
    flag = '--validation-source'
    return PythonSource(flag, name, self.data.num_classes, examples_per_epoch=0)

  def check_split(self, split: str) -> None:
    """Raises InputError where the split is missing or damaged, or a batch does not fit."""
    count = self.held_out(split).num_examples_per_epoch()
    input_pipeline.check_memory(min(count, self.hparams.eval_batch_size), '--eval-batch-size')

  def with_checkpoint(self, use: Callable[[str], Any]) -> Any:
    """Returns what `use` makes of the named or latest checkpoint; raises InputError without one.

    A training that keeps few checkpoints may delete one before it is read: then the next is taken.
    """
    while True:
      path = self._pointed_at()
      try:
        return use(self.checkpoint())
      except Terminated:
        raise
      except Exception:
        if not path or files.exists(f'{path}.index') or path == self._pointed_at():
          raise
      log.info('%s was deleted before it was read; taking the next', path)

  def _pointed_at(self) -> str:
    """Returns the checkpoint to use, which may be deleted already; '' if there is none."""
    named, job_dir = self.options.checkpoint, self.options.job_dir
    if named == checkpoints.BEST:
      return best_checkpoints.checkpoint(job_dir)
    return named or checkpoints.listed(job_dir) or ''

  def checkpoint(self) -> str:
    """Returns the named or latest checkpoint; raises InputError if there is none."""
    named = self.options.checkpoint
    checkpoint = checkpoints.find(self.options.job_dir, named)
    if named and named != checkpoints.BEST:  # It may belong to another job.
      network_size.check_checkpoint(checkpoint, named, self.hparams, self.data)
    if self.options.use_ema:
      ema.check_are_in(checkpoint)
    return checkpoint


def in_steps(
  hparams: HParams, options: RunOptions, role: Role, examples_per_epoch: int
) -> tuple[HParams, RunOptions]:
  """The options with the numbers of global steps that they give in epochs.

  Raises:
    InputError: these are too many, or do not fit each other.
  """
  per_step = role.examples_per_step(hparams.train_batch_size)

  def counted(given: Any, *names: str) -> Any:
    steps = {}
    for name in names:
      if epochs := getattr(given, f'{name}_epochs'):
        [number] = schedules.boundaries_in_steps([epochs], examples_per_epoch, per_step)
        if number >= 1 << 31:  # As options hold them.
          flag = f'--{name.replace("_", "-")}-epochs'
          raise InputError(f'{flag} {epochs:g}: its {number:,} steps are too many; lower it')
        steps[f'{name}_steps'] = number
    return dataclasses.replace(given, **steps)

  hparams, options = counted(hparams, 'train'), counted(options, 'eval_every', 'save_every')
  checks.check_profiled(options, hparams.train_steps)
  return hparams, options


# TF_CONFIG as it was, and of each context, of which the last is in force: those of calls in several
# threads may end in another order.
_tf_configs: dict[object, str | None] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def tf_config(cluster: Cluster) -> Iterator[None]:
  """A context with TF_CONFIG set for the Estimator, which reads nothing but the environment."""
  own = object()
  with _lock:
    if not _tf_configs:
      _tf_configs[None] = os.environ.get('TF_CONFIG')
    _tf_configs[own] = os.environ['TF_CONFIG'] = cluster.tf_config
  try:
    yield
  finally:
    with _lock:
      del _tf_configs[own]
      last = [*_tf_configs.values()][-1]
      if len(_tf_configs) == 1:
        _tf_configs.clear()
      if last is None:
        os.environ.pop('TF_CONFIG', None)  # A user's code may have cleared it.
      else:
        os.environ['TF_CONFIG'] = last
