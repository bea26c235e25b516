"""What TensorBoard shows of a job: curves of training, its images, histograms and hyper-parameters.

The Estimator writes the numbers of each evaluation itself, to JOB/validation and JOB/eval.
"""

import os
import re
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorboard.plugins.hparams import api_pb2, summary

from cifar10.callbacks import confusion_picture
from cifar10.callbacks.base import Callback, Evaluation, Run, Step, TrainingGraph
from cifar10.callbacks.meter import EVERY_STEPS, AveragingHundreds, Means
from cifar10.job import metrics_log
from cifar10.options.hparams import all_values

# TensorBoard sorts groups by name, and opens the first two: accuracy and loss, which stand alone.
# That is why what training and evaluations write beside them is in groups that come later.
_TAGS = {'learning_rate': 'optimizer/learning_rate'}
_SHOWN_IMAGES = 4  # Augmented training images in a summary.
_OWN = tf.compat.v1.GraphKeys.SUMMARIES  # What users' networks and callbacks write.
_SAMPLED = 'sampled_summaries'  # A collection of no other: the Estimator runs its own at each step.


def make(run: Run) -> Callback | None:
  """In the processes that see the job dir: the chief, and an evaluator."""
  if run.is_chief:
    return TrainingSummaries(run)
  return EvaluationSummaries(run) if run.cluster.task_type == 'evaluator' else None


class EvaluationSummaries(Callback):
  """Adds the confusion matrix to an evaluation, as a picture."""

  def __init__(self, run: Run):
    self._job_dir = run.job_dir
    self._classes = run.data.classes

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    picture = confusion_picture.draw(evaluation.confusion_matrix, self._classes)
    height, width, depth = picture.shape
    image = tf.compat.v1.Summary.Image(
      height=height,
      width=width,
      colorspace=depth,
      encoded_image_string=confusion_picture.to_png(picture),
    )
    value = tf.compat.v1.Summary.Value(tag='pictures/confusion_matrix', image=image)
    folder = os.path.join(self._job_dir, evaluation.split)
    write(folder, evaluation.step, tf.compat.v1.Summary(value=[value]))


class TrainingSummaries(AveragingHundreds):
  """Curves of means over steps; images, gradients and the like at the last of these steps."""

  def __init__(self, run: Run):
    super().__init__(run)
    self._evaluation = EvaluationSummaries(run)
    self._started = False
    self._step = 0
    self._sampled_at = 0
    self._summaries: list[tf.Tensor] = []

  def on_graph(self, graph: TrainingGraph) -> None:
    """Adds what is shown of single steps; computed only at those that are written."""
    summary, kept = tf.compat.v1.summary, [_SAMPLED]
    for name, part in graph.loss_parts.items():
      summary.scalar(f'loss_parts/{name}', part, kept)
    norm = tf.linalg.global_norm([gradient for gradient, _ in graph.gradients])
    summary.scalar('optimizer/gradient_norm', norm, kept)
    summary.image('pictures/training', graph.images, _SHOWN_IMAGES, kept)
    for gradient, variable in graph.gradients if self._run.options.histograms else ():
      summary.histogram(f'weights/{variable.op.name}', variable, kept)
      summary.histogram(f'weight_gradients/{variable.op.name}', gradient, kept)

  def after_create_session(self, session: Any, coord: Any) -> None:
    super().after_create_session(session, coord)
    self._step = self._sampled_at = self._window.step
    with session.graph.as_default():
      collected = tf.compat.v1.get_collection
      self._summaries = [*collected(_SAMPLED), *filter(_is_own, collected(_OWN))]
    # TensorBoard then drops what an earlier process wrote of this step and later ones, which are
    # made again.
    start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
    _writer(self._run.job_dir).add_session_log(start, self._step + 1)

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs(self._summaries) if self._samples_next() else None

  def on_step_end(self, step: Step) -> None:
    if not self._started:  # After the session's start, which would drop it.
      self._write(_start(self._run))
      self._started = True
    self._step = step.step
    super().on_step_end(step)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if run_values.results is not None:
      self._sampled_at = self._step
      for summary in run_values.results:
        self._write(summary)

  def averaged(self, means: Means) -> None:
    images_per_second = means.steps_per_second * self._run.examples_per_step
    values = {_TAGS.get(name, name): value for name, value in means.values.items()}
    values['resources/images_per_second'] = images_per_second
    write_scalars(self._run.job_dir, means.step, values)

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    super().on_evaluate_end(evaluation)
    self._evaluation.on_evaluate_end(evaluation)

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    super().on_train_end(reason, message, step)
    if self._started:
      self._write(_end(reason))
      _writer(self._run.job_dir).flush()

  def _samples_next(self) -> bool:
    """Whether the next step ends a window, as far as one can know where others make steps, too."""
    following = self._step + 1
    is_due = following // EVERY_STEPS > self._sampled_at // EVERY_STEPS
    return bool(self._summaries) and (is_due or following >= self._run.last_step)

  def _write(self, summary: Any) -> None:
    _writer(self._run.job_dir).add_summary(summary, self._step)


def _is_own(summary: tf.Tensor) -> bool:
  """Whether a user's network or callback writes it: not the Estimator, and of towers the first."""
  name = summary.op.name
  return name != 'loss' and not re.match(r'(tower|replica)_[1-9]', name)


def drop_evaluation(job_dir: str, split: str, step: int) -> None:
  """Has TensorBoard drop an evaluation that is made again, as the process was killed after it."""
  if metrics_log.has_evaluation(job_dir, step, split):
    start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
    _writer(os.path.join(job_dir, split)).add_session_log(start, step)


def write_scalars(job_dir: str, step: int, values: Mapping[str, float]) -> None:
  """Adds a point to each of these curves of the training."""
  listed = [tf.compat.v1.Summary.Value(tag=tag, simple_value=values[tag]) for tag in values]
  write(job_dir, step, tf.compat.v1.Summary(value=listed))


def write(folder: str, step: int, summary: Any) -> None:
  """Adds a summary of a step to a folder's event file, which the Estimator writes to as well."""
  _writer(folder).add_summary(summary, step)
  _writer(folder).flush()


def _writer(folder: str) -> Any:
  with tf.Graph().as_default():  # An evaluation is heard of outside of any; a writer refuses that.
    return tf.compat.v1.summary.FileWriterCache.get(folder)


def _start(run: Run) -> Any:
  """The options of a training that begins: a Summary."""
  values = {
    name: ','.join(map(str, value)) if isinstance(value, tuple) else value
    for name, value in all_values(run.hparams).items()
    if value is not None
  }
  # A group is a row of the table; it is shown by name.
  return _tensorflows(
    summary.session_start_pb(values, group_name=run.job_dir, start_time_secs=time.time())
  )


def _end(reason: str) -> Any:
  """How it ended, with the reason that `Callback.ended` hears: a Summary."""
  failed = reason == 'error'
  status = api_pb2.STATUS_FAILURE if failed else api_pb2.STATUS_SUCCESS
  return _tensorflows(summary.session_end_pb(status))


def _tensorflows(summary_pb: Any) -> Any:
  """TensorBoard has a copy of its own of the class Summary."""
  return tf.compat.v1.Summary.FromString(summary_pb.SerializeToString())
