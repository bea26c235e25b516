"""Summaries for TensorBoard: curves, images, hyper-parameters; and traces of steps.

The Estimator itself writes the numbers of each evaluation, to JOB/validation and JOB/eval.
"""

import io
import math
import os
import re
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw, ImageFont
from tensorboard.plugins.hparams import api_pb2, summary
from tensorflow.compat.v1 import Session
from tensorflow.compat.v1.train import SessionRunArgs, SessionRunContext, SessionRunValues
from tensorflow.train import Coordinator

from cifar10.callbacks.base import EVERY_STEPS, Callback, Evaluation, Means, Step, TrainingGraph
from cifar10.core.logs import log
from cifar10.job import metrics_log
from cifar10.job.run import Run
from cifar10.options.hparams import all_values

# TensorBoard sorts groups by name and opens the first two: accuracy and loss, which have no
# others beside them. So all other summaries are in groups whose names sort after these.
_TAGS = {'learning_rate': 'optimizer/learning_rate'}
_SHOWN_IMAGES = 4  # Augmented training images in a summary.
_OWN = tf.compat.v1.GraphKeys.SUMMARIES  # The summaries of users' networks and callbacks.
_SAMPLED = 'sampled_summaries'  # Not the Estimator's collection, which it runs at each step.
_MOST_CLASSES = 200  # Of a matrix's picture with words: one of more would have gigabytes.
_MARGIN = 3  # Pixels around each text: TensorBoard shrinks wide pictures.
_DARKEST = (8, 48, 107)  # Blue, the colour of a cell that has all examples of its row.
_DARK = 144  # Of red: on darker cells digits are white, from 45 % of the row on.


class Summaries(Callback):
  """Writes means over steps as curves, images and gradients of their last step, and matrices."""

  def __init__(self, run: Run):
    self._run = run
    self._started = False
    self._sampled_at = 0
    self._summaries: list[tf.Tensor] = []

  def on_graph(self, graph: TrainingGraph) -> None:
    summary, kept = tf.compat.v1.summary, [_SAMPLED]
    for name, part in graph.loss_parts.items():
      summary.scalar(f'loss_parts/{name}', part, kept)
    norm = tf.linalg.global_norm([gradient for gradient, _ in graph.gradients])
    summary.scalar('optimizer/gradient_norm', norm, kept)
    summary.image('pictures/training', graph.images, _SHOWN_IMAGES, kept)

  def after_create_session(self, session: Session, coord: Coordinator) -> None:
    self._sampled_at = self._run.step
    collected = session.graph.get_collection
    self._summaries = [*collected(_SAMPLED), *filter(_is_own, collected(_OWN))]
    # TensorBoard drops what an earlier process wrote of later steps, which are made again.
    metrics_log.drop_summaries_from(self._run.job_dir, self._run.step + 1)

  def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
    """Fetches them if the next step ends a window (an estimate where other workers step, too)."""
    following = self._run.step + 1
    is_due = following // EVERY_STEPS > self._sampled_at // EVERY_STEPS
    is_due |= following >= self._run.last_step
    return SessionRunArgs(self._summaries) if self._summaries and is_due else None

  def on_step_end(self, step: Step) -> None:
    if not self._started:  # Later than the session's start, or TensorBoard drops it.
      self._write(_start(self._run))
      self._started = True

  def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
    if run_values.results is not None:
      self._sampled_at = self._run.step
      for summary in run_values.results:
        self._write(summary)

  def on_means(self, means: Means) -> None:
    values = {_TAGS.get(name, name): value for name, value in means.values.items()}
    values['resources/images_per_second'] = means.steps_per_second * self._run.examples_per_step
    metrics_log.write_scalars(self._run.job_dir, means.step, values)

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    picture = confusion_picture(evaluation.confusion_matrix, self._run.data.classes)
    image = tf.compat.v1.Summary.Image(
      height=picture.height, width=picture.width, colorspace=3, encoded_image_string=to_png(picture)
    )
    value = tf.compat.v1.Summary.Value(tag='pictures/confusion_matrix', image=image)
    folder = os.path.join(self._run.job_dir, evaluation.split)
    metrics_log.write_summary(folder, evaluation.step, tf.compat.v1.Summary(value=[value]))

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    if self._started:
      status = api_pb2.STATUS_FAILURE if reason == 'error' else api_pb2.STATUS_SUCCESS
      end = summary.session_end_pb(status).SerializeToString()
      metrics_log.write_summary(self._run.job_dir, self._run.step, end)

  def _write(self, summary: bytes) -> None:
    metrics_log.summary_writer(self._run.job_dir).add_summary(summary, self._run.step)


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


def confusion_picture(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> Image.Image:
  """Draws [true class][predicted class]: a cell is the darker the larger its share of its row.

  Names and labels stand beside the rows, labels above the columns. Of more than 200 classes the
  RGB picture has only shades, a pixel a cell.
  """
  counts = np.asarray(matrix).astype(int)
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  shades = np.round(255 + (np.array(_DARKEST) - 255) * shares[..., np.newaxis]).astype(np.uint8)
  if len(classes) > _MOST_CLASSES:
    return Image.fromarray(shades)
  size = 20 if len(classes) <= 30 else 10  # Of letters, in pixels.
  font, cell = ImageFont.load_default(size), 3 * size  # Five digits wide.
  names = [f'{ascii(name)[1:-1]:.20} {label}' for label, name in enumerate(classes)]
  left = math.ceil(max(map(font.getlength, names))) + 2 * _MARGIN
  side = cell * len(names) + _MARGIN
  picture = Image.new('RGB', (left + side, cell + side), 'white')
  pen = ImageDraw.Draw(picture)
  pen.fontmode = '1'  # Letters without grey: the file then has 15 KB, not 70.
  for label, name in enumerate(names):
    middle = cell * label + cell / 2
    pen.text((left - _MARGIN, cell + middle), name, 'black', font, 'rm')
    pen.text((left + middle, cell / 2), str(label), 'black', font, 'mm')
  for row, column in np.ndindex(*counts.shape):
    x, y, count = left + column * cell, cell + row * cell, counts[row, column]
    shade = tuple(shades[row, column].tolist())
    pen.rectangle((x + 1, y + 1, x + cell - 1, y + cell - 1), shade)
    ink = 'white' if shade[0] <= _DARK else 'black' if count else 'darkgray'
    pen.text((x + cell / 2, y + cell / 2), str(count), ink, font, 'mm')
  return picture


def to_png(picture: Image.Image) -> bytes:
  """Returns a picture as a PNG file."""
  file = io.BytesIO()
  picture.save(file, 'PNG')
  return file.getvalue()


class Profile(tf.compat.v1.train.ProfilerHook, Callback):
  """Traces the chief's steps from `first` to `last`: JOB/profile/timeline-STEP.json."""

  def __init__(self, job_dir: str, first: int, last: int):
    folder = os.path.join(job_dir, 'profile')
    with tf.Graph().as_default():  # In which TensorFlow makes a writer.
      tf.compat.v1.train.ProfilerHook.__init__(self, save_steps=1, output_dir=folder)
    self._timer.should_trigger_for_step = lambda step: first <= step <= last
    log.info('a trace of each step goes to %s; https://ui.perfetto.dev opens it', folder)

  def after_create_session(self, session: Session, coord: Coordinator) -> None:
    # Else TensorFlow would not trace the first step.
    self._next_step = int(session.run(self._global_step_tensor)) + 1
