"""Summaries for TensorBoard: training curves, images, histograms and hyper-parameters.

The Estimator itself writes the numbers of each evaluation, to JOB/validation and JOB/eval.
"""

import os
import re
import time
from typing import Any

import tensorflow as tf
from tensorboard.plugins.hparams import api_pb2, summary

from cifar10.callbacks import confusion_picture
from cifar10.callbacks.base import Callback, Evaluation, Means, Step, TrainingGraph
from cifar10.callbacks.meter import EVERY_STEPS
from cifar10.job import metrics_log
from cifar10.job.run import Run
from cifar10.options.hparams import all_values

# TensorBoard sorts groups by name and opens the first two: accuracy and loss, which have no
# others beside them. So all other summaries are in groups whose names sort after these.
_TAGS = {'learning_rate': 'optimizer/learning_rate'}
_SHOWN_IMAGES = 4  # Augmented training images in a summary.
_OWN = tf.compat.v1.GraphKeys.SUMMARIES  # The summaries of users' networks and callbacks.
_SAMPLED = 'sampled_summaries'  # Not the Estimator's collection, which it runs at each step.


def make(run: Run) -> Callback | None:
  """Returns the callback in the chief or an evaluator: these processes see the job dir."""
  is_evaluator = run.cluster.task_type == 'evaluator'
  return Summaries(run) if run.is_chief or is_evaluator else None


class Summaries(Callback):
  """Writes means over steps as curves; images, gradients and the like of a window's last step.

  Of each evaluation it writes the confusion matrix as a picture.
  """

  def __init__(self, run: Run):
    self._run = run
    self._started = False
    self._sampled_at = 0
    self._summaries: list[tf.Tensor] = []

  def on_graph(self, graph: TrainingGraph) -> None:
    """Adds the summaries of single steps; they run only at steps that are written."""
    summary, kept = tf.compat.v1.summary, [_SAMPLED]
    for name, part in graph.loss_parts.items():
      summary.scalar(f'loss_parts/{name}', part, kept)
    norm = tf.linalg.global_norm([gradient for gradient, _ in graph.gradients])
    summary.scalar('optimizer/gradient_norm', norm, kept)
    summary.image('pictures/training', graph.images, _SHOWN_IMAGES, kept)
    for gradient, variable in graph.gradients if self._run.options.histograms else ():
      summary.histogram(f'weights/{variable.op.name}', _finite(variable), kept)
      summary.histogram(f'weight_gradients/{variable.op.name}', _finite(gradient), kept)

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._sampled_at = self._run.step
    with session.graph.as_default():
      collected = tf.compat.v1.get_collection
      self._summaries = [*collected(_SAMPLED), *filter(_is_own, collected(_OWN))]
    # TensorBoard then drops what an earlier process wrote of this step and later ones, which this
    # process makes again.
    metrics_log.drop_summaries_from(self._run.job_dir, self._run.step + 1)

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs(self._summaries) if self._samples_next() else None

  def on_step_end(self, step: Step) -> None:
    if not self._started:  # Later than the session's start, or TensorBoard drops it.
      self._write(_start(self._run))
      self._started = True

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if run_values.results is not None:
      self._sampled_at = self._run.step
      for summary in run_values.results:
        self._write(summary)

  def on_means(self, means: Means) -> None:
    images_per_second = means.steps_per_second * self._run.examples_per_step
    values = {_TAGS.get(name, name): value for name, value in means.values.items()}
    values['resources/images_per_second'] = images_per_second
    metrics_log.write_scalars(self._run.job_dir, means.step, values)

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    picture = confusion_picture.draw(evaluation.confusion_matrix, self._run.data.classes)
    png, (height, width, depth) = confusion_picture.to_png(picture), picture.shape
    image = tf.compat.v1.Summary.Image(
      height=height, width=width, colorspace=depth, encoded_image_string=png
    )
    value = tf.compat.v1.Summary.Value(tag='pictures/confusion_matrix', image=image)
    folder = os.path.join(self._run.job_dir, evaluation.split)
    metrics_log.write_summary(folder, evaluation.step, tf.compat.v1.Summary(value=[value]))

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    if self._started:
      status = api_pb2.STATUS_FAILURE if reason == 'error' else api_pb2.STATUS_SUCCESS
      end = summary.session_end_pb(status).SerializeToString()
      metrics_log.write_summary(self._run.job_dir, self._run.step, end)

  def _samples_next(self) -> bool:
    """Tells whether the next step ends a window (an estimate if other workers make steps, too)."""
    following = self._run.step + 1
    is_due = following // EVERY_STEPS > self._sampled_at // EVERY_STEPS
    return bool(self._summaries) and (is_due or following >= self._run.last_step)

  def _write(self, summary: Any) -> None:
    metrics_log.summary_writer(self._run.job_dir).add_summary(summary, self._run.step)


def _finite(values: Any) -> tf.Tensor:
  """The finite ones, flat: a histogram of others fails before the loss is seen to be NaN."""
  return tf.boolean_mask(values, tf.math.is_finite(values))


def _is_own(summary: tf.Tensor) -> bool:
  """Tells whether a user's network or callback wrote it, in the first tower."""
  name = summary.op.name
  return name != 'loss' and not re.match(r'(tower|replica)_[1-9]', name)


def _start(run: Run) -> bytes:
  """Returns a Summary of the options at the start of a training; its class is TensorBoard's own."""
  values = {
    name: ','.join(map(str, value)) if isinstance(value, tuple) else value
    for name, value in all_values(run.hparams).items()
    if value is not None
  }
  # A group is a row of the table and shown by its name.
  start = summary.session_start_pb(values, group_name=run.job_dir, start_time_secs=time.time())
  return start.SerializeToString()
