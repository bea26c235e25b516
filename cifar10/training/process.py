"""What every mode of a job needs: its network, data and devices, and this process's part in it."""

import functools
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cifar10.callbacks.meter import MeterHook
from cifar10.cluster.control_state import SharedControl
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.core import parts, sessions
from cifar10.core.estimator import tf_estimator
from cifar10.data import input_pipeline
from cifar10.job import checkpoints, job_config
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training import (
  ema,
  feed,
  model_fn,
  network_size,
  placement,
  run_config,
)
from cifar10.training.network_builder import DEFAULT_INIT, Initialization

_ALONE = Cluster()


class Process:
  """One process of a job. It makes Estimators and their inputs, and runs nothing by itself."""

  def __init__(
    self,
    hparams: HParams,
    options: RunOptions,
    cluster: Cluster = _ALONE,
    monitor: LivenessMonitor | None = None,
  ):
    """Checks devices and data set; writes nothing.

    For an all-reduce between processes it also waits until all of them are there.

    Args:
      hparams: the network and its optimization.
      options: where it runs.
      cluster: which task of a run this process is.
      watch: hears SIGTERM; by default nobody does.

    Raises:
      InputError: devices that cannot run, or another data set than the job's.
      Terminated: SIGTERM came while it waited.
    """
    placement.check_distribution(options)
    if options.deterministic:
      tf.config.experimental.enable_op_determinism()
    num_gpus = placement.num_gpus(options, len(tf.config.list_physical_devices('GPU')))
    self.hparams = placement.with_dtype(hparams, num_gpus)
    self.data = job_config.described_data(options.job_dir, options.data_dir)
    self.options = options
    self.cluster = cluster
    self.monitor = monitor or LivenessMonitor()
    self.strategy = None
    placement.check_deterministic(options, cluster, self.gradients_per_update)
    self.control = SharedControl(cluster, options.distribute is not None)
    self.placement = placement.placement(options, num_gpus)
    if options.distribute and cluster.task_type != 'evaluator':
      # Before any operation runs: between processes it starts TensorFlow's server, and then waits
      # for the others where no other thread runs.
      self.monitor.wait_for_peers()
      self.strategy = run_config.strategy(
        options.distribute, cluster, self.placement.tower_devices, num_gpus
      )
      self.monitor.listen()

  @functools.cached_property
  def feed(self) -> feed.Feed:
    """What is trained on; raises InputError for a source that cannot be found."""
    return feed.make(self.hparams, self.options, self.cluster, self.data)

  @property
  def final_split(self) -> str:
    """The split of the last evaluation."""
    return self.options.subset or 'eval'

  @property
  def data_dir(self) -> str:
    """The folder of the record files."""
    assert self.options.data_dir  # The command asks for it in the modes that read data.
    return self.options.data_dir

  @property
  def split_on_the_way(self) -> str:
    """The split that is evaluated while training goes on."""
    # Choosing by the test set would leak it; it serves only where nothing else is left.
    return self.options.subset or ('validation' if self.hparams.train_on == 'train' else 'eval')

  @property
  def gradients_per_update(self) -> int:
    """How many workers' gradients make an update; 0: each is applied as it comes."""
    sync = self.options.sync or self.options.distribute is not None
    return self.cluster.gradients_per_update(sync, self.options.backup_workers)

  def estimator(
    self,
    examples_per_epoch: int = 0,
    cluster: Cluster = _ALONE,
    strategy: Any = None,
    beginning: Initialization = DEFAULT_INIT,
    meter: MeterHook | None = None,
  ) -> Any:
    """The Estimator. Only training knows, and needs, the data and the other tasks."""
    options = self.options
    estimator = tf_estimator.Estimator(
      model_fn.get_model_fn(
        self.hparams,
        self.placement,
        self.data,
        examples_per_epoch=examples_per_epoch,
        replication=self.replication(cluster, strategy),
        meter=meter,
        histograms=options.histograms,
        beginning=beginning,
        use_ema=options.use_ema,
      ),
      config=run_config.run_config(
        job_dir=options.job_dir,
        seed=self.hparams.seed,
        # The Estimator must be given some number, but the trainer's savers do the saving.
        save_every_steps=options.eval_every_steps,
        keep_checkpoints=options.keep_checkpoints,
        session=self.session_config(cluster),
        cluster=cluster,
        strategy=strategy,
      ),
    )
    # TensorBoard's names of runs are those of folders: not 'eval_validation' and 'eval_eval'. An
    # Estimator's methods cannot be overridden in a subclass.
    estimator.eval_dir = lambda name: os.path.join(options.job_dir, name)
    return estimator

  def replication(self, cluster: Cluster, strategy: Any) -> placement.Replication:
    """This process's part in the updates of a cluster."""
    return placement.Replication(
      cluster,
      self.gradients_per_update,
      self.monitor,
      self.control,
      strategy is not None,
      self.options.deterministic,
    )

  def session_config(self, cluster: Cluster = _ALONE) -> Any:
    """How a session uses this machine, and which tasks it sees."""
    options = self.options
    return sessions.session_config(
      options.num_cpu_towers,
      options.num_intra_threads,
      options.num_inter_threads,
      options.log_device_placement,
      cluster.device_filters,
      # In a cluster TensorFlow would join operations in bfloat16 into some that it can run in a
      # single process only.
      fuses=not (cluster.is_distributed and self.hparams.dtype == 'bfloat16'),
    )

  def train_input_fn(self) -> Callable[[], Any]:
    """Batches that go on where training stands when the session is made."""

    def input_fn() -> Any:
      batches_done = self._global_step_at_start()
      if not self.gradients_per_update:  # About that many: each worker goes at its own pace.
        batches_done //= self.cluster.num_workers
      batches = self.feed.batches(
        len(self.placement.tower_devices), batches_done * self.hparams.train_batch_size
      )
      return batches if self.strategy is None else input_pipeline.to_replicas(batches)

    return input_fn

  def _global_step_at_start(self) -> Any:
    """Of a strategy, the latest checkpoint's; else a tensor, int64.

    A worker need not see the checkpoints, and a session that a lost parameter server has ended is
    made again within the process: whoever initialises the iterator then reads the variable.
    """
    if self.strategy is None:
      return tf.cast(tf.compat.v1.train.get_global_step().read_value(), tf.int64)
    return checkpoints.latest_step(self.options.job_dir)

  def eval_input_fn(self, split: str) -> Callable[[], Any]:
    """Each example of a split once."""

    def input_fn() -> Any:
      return input_pipeline.input_fn(
        self.data_dir, split, 1, self.hparams.eval_batch_size, is_training=False
      )

    return input_fn

  def check_split(self, split: str) -> None:
    """Raises InputError where the split's file is missing or damaged, or a batch does not fit."""
    count = input_pipeline.RecordDataset(self.data_dir, split).num_examples_per_epoch()
    input_pipeline.check_memory(min(count, self.hparams.eval_batch_size), '--eval-batch-size')

  def checkpoint(self) -> str:
    """The one that was named, or the latest; raises InputError where there is none."""
    named = self.options.checkpoint
    checkpoint = checkpoints.find(self.options.job_dir, named)
    if named and named != checkpoints.BEST:  # It need not be of this job.
      variable_files = parts.load('variable_files')
      source = variable_files.open_checkpoint(checkpoint, f'--checkpoint {named}')
      shapes, _ = network_size.variable_shapes(self.hparams, self.data)
      variable_files.check_network(source, shapes, self.hparams.family.NAME)
    if self.options.use_ema:
      ema.check_are_in(checkpoint)
    return checkpoint
