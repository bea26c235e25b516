"""What a callback is: a session hook that hears of more than runs of the session.

A callback is a file with a function `make(run) -> Callback | None`, and a line in `registry.py`.
It acts in the process that trains or evaluates, and is switched by an option.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.cluster.control import SharedControl
from cifar10.cluster.roles import Role
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tasks import Cluster
from cifar10.data.info import DatasetInfo
from cifar10.job.stop_record import StopRequest
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions


class TrainingGraph(NamedTuple):
  """What a step computes, for callbacks that add operations of their own to its graph."""

  images: tf.Tensor  # uint8 [n, 32, 32, 3], of the first tower
  labels: tf.Tensor  # int32 [n]
  scalars: Mapping[str, tf.Tensor]  # 'loss', 'accuracy' and 'learning_rate'
  loss_parts: Mapping[str, tf.Tensor]  # float32 scalars, by name
  gradients: Sequence[tuple[tf.Tensor, Any]]  # of the network, with their variables


class Step(NamedTuple):
  """A step that is over."""

  step: int  # the global step after it
  values: Mapping[str, float]  # 'loss', 'accuracy' of its batch, and 'learning_rate'


class Evaluation(NamedTuple):
  """One split with one checkpoint."""

  step: int
  split: str
  checkpoint: str
  result: Mapping[str, Any]  # as the program prints it
  confusion_matrix: Sequence[Sequence[int]]  # [true class][predicted class]
  on_the_way: bool  # not the final one

  @property
  def chooses(self) -> bool:
    """Whether weights, and the end of training, may be chosen by it: never by the test set."""
    return self.on_the_way and self.split == 'validation'


@dataclasses.dataclass
class Run:
  """What callbacks know of the training in this process, or of the evaluator."""

  hparams: HParams
  options: RunOptions
  data: DatasetInfo
  role: Role
  stop_request: StopRequest  # whether training is to end before its last step
  # In training only:
  examples_per_epoch: int = 0
  examples_per_step: int = 0  # of a global step, all workers' together
  evaluates: bool = False  # this process, on the way
  save: Callable[[Any, bool], str] = lambda session, evaluating: ''  # -> the checkpoint
  open_shell: Callable[[Any, int], None] | None = None  # `shell` sets it: of a session, at a step
  seconds_before: float = 0.0  # of training, in earlier processes: `metrics` finds it
  _since: float = dataclasses.field(default_factory=time.monotonic)

  @property
  def job_dir(self) -> str:
    """Where the job keeps everything."""
    return self.options.job_dir

  @property
  def last_step(self) -> int:
    """The global step at which training ends."""
    return self.hparams.train_steps

  def epochs(self, step: int) -> int:
    """How many whole epochs are over at a global step of this training."""
    return step * self.examples_per_step // self.examples_per_epoch

  @property
  def cluster(self) -> Cluster:
    """All tasks, this process's among them."""
    return self.role.cluster

  @property
  def monitor(self) -> SignalMonitor:
    """Hears SIGTERM."""
    return self.role.monitor

  @property
  def control(self) -> SharedControl:
    """The orders that the chief gives all replicas."""
    return self.role.control

  @property
  def is_chief(self) -> bool:
    """Whether this process writes into the job dir while it trains."""
    return self.role.saves

  def seconds(self) -> float:
    """Of training, all processes of this task, evaluations on the way and pauses included."""
    return self.seconds_before + time.monotonic() - self._since


class Callback(tf.compat.v1.train.SessionRunHook):
  """Base of all: hears of nothing but what it overrides. Hooks' methods come beside these."""

  def on_graph(self, graph: TrainingGraph) -> None:
    """Once a training graph, when its step is built: operations may still be added."""

  def on_step_end(self, step: Step) -> None:
    """After every step that this process made, before a checkpoint of it is saved."""

  def on_epoch_end(self, epoch: int) -> None:
    """After the first step at or beyond the end of each epoch, the first one's number being 1."""

  def on_save(self, checkpoint: str, step: int) -> None:
    """A checkpoint is whole. Only the chief saves."""

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    """An evaluation is over, in the process that made it."""

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    """Training is over, and its last checkpoint saved: 'train_steps', 'SIGTERM', ..."""
