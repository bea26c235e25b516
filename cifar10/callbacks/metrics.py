"""Writes what happens in a job: events to JOB/metrics.jsonl, curves and pictures for TensorBoard.

The evaluator itself writes the numbers of each evaluation for TensorBoard (training/evaluator.py).
"""

import io
import json
import math
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw, ImageFont
from tensorflow.compat.v1 import Session
from tensorflow.compat.v1.train import SessionRunArgs, SessionRunContext, SessionRunValues
from tensorflow.train import Coordinator

import cifar10
from cifar10.callbacks.base import EVERY_STEPS, Callback, Evaluation, Means, TrainingGraph
from cifar10.core import devices, files
from cifar10.core.logs import log, one_line
from cifar10.core.option import values
from cifar10.job import metrics_log
from cifar10.job.run import Run
from cifar10.options.hparams import all_values

# TensorBoard sorts groups by name and opens the first two: accuracy and loss, which have no
# others beside them. So all other summaries are in groups whose names sort after these.
_TAGS = {'learning_rate': 'optimizer/learning_rate'}
_TAGS |= {'images_per_second': 'resources/images_per_second'}
_SHOWN_IMAGES = 4  # Augmented training images in a summary.
# The Estimator's own, in whose place the means are, and those of all towers but the first.
_NOT_SHOWN = re.compile('loss$|(tower|replica)_[1-9]')
_MOST_CLASSES = 200  # Of a matrix's picture with words: one of more would have gigabytes.
_MARGIN = 3  # Pixels around each text: TensorBoard shrinks wide pictures.
_DARKEST = (8, 48, 107)  # Blue, the colour of a cell that has all examples of its row.


class Metrics(Callback):
  """Writes each event when it happens, and the means of every hundred training steps.

  Summaries of the graph are of the last of these steps: images, gradients, and a user's own.
  """

  def __init__(self, run: Run):
    self._run = run
    self._started = False
    self._saved_at = -1
    self._sampled_at = 0
    self._summaries: list[tf.Tensor] = []

  def on_graph(self, graph: TrainingGraph) -> None:
    summary = tf.compat.v1.summary
    for name, part in graph.loss_parts.items():
      summary.scalar(f'loss_parts/{name}', part)
    norm = tf.linalg.global_norm([gradient for gradient, _ in graph.gradients])
    summary.scalar('optimizer/gradient_norm', norm)
    summary.image('pictures/training', graph.images, _SHOWN_IMAGES)

  def after_create_session(self, session: Session, coord: Coordinator) -> None:
    run, step = self._run, self._run.step
    events = metrics_log.read(run.job_dir)  # Those of lost steps, too.
    steps_lost = max(metrics_log.go_back(run.job_dir, step), run.steps_lost)
    run.steps_lost = 0
    resumed = any(event['event'] == 'start' for event in events)  # The step may be 0 even then.
    if any(event['event'] == 'save' and event['step'] == step for event in events):
      self._saved_at = step  # TensorFlow saves the restored checkpoint again.
    if not self._started and step:  # With the time of lost steps; at step 0 it is 0.
      run.seconds_before = max((event.get('seconds') or 0 for event in events), default=0)
    self._write('start', step, steps_lost=steps_lost, resumed=resumed, **_described(run))
    self._started, self._sampled_at = True, step
    collected = session.graph.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
    self._summaries = [each for each in collected if not _NOT_SHOWN.match(each.op.name)]
    # TensorBoard drops what an earlier process wrote of later steps, which are made again.
    metrics_log.drop_summaries_from(run.job_dir, step + 1)

  def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
    """Fetches summaries if the next step ends a hundred (about, where other workers step, too)."""
    following = self._run.step + 1
    is_due = following // EVERY_STEPS > self._sampled_at // EVERY_STEPS
    is_due |= following >= self._run.last_step
    return SessionRunArgs(self._summaries) if self._summaries and is_due else None

  def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
    if run_values.results is not None:
      self._sampled_at = self._run.step
      for summary in run_values.results:
        metrics_log.write_summary(self._run.job_dir, self._run.step, summary)

  def on_means(self, means: Means) -> None:
    run, step = self._run, means.step
    epoch = step * run.examples_per_step / run.examples_per_epoch
    speed = {'images_per_second': means.steps_per_second * run.examples_per_step}
    self._write('train', step, **means.values, epoch=epoch, **speed, seconds=run.seconds())
    curves = {_TAGS.get(name, name): value for name, value in {**means.values, **speed}.items()}
    metrics_log.write_scalars(run.job_dir, step, curves)

  def on_save(self, checkpoint: str, step: int) -> None:
    if step != self._saved_at:  # Two savers may save at one step.
      self._write('save', step, checkpoint=checkpoint, seconds=self._run.seconds())
    self._saved_at = step

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    run, split, step = self._run, evaluation.split, evaluation.step
    result = {key: value for key, value in evaluation.result.items() if key != 'global_step'}
    if run.hparams.tta != 'none':
      result |= {'tta': run.hparams.tta, 'tta_below': run.hparams.tta_below}
    recorded = metrics_log.evaluations(run.job_dir, step, split)
    # A process that was killed after an evaluation, before its next save, repeats the evaluation; a
    # finished job's command makes the last one again, perhaps with other options.
    if not recorded or not (evaluation.on_the_way or result.items() <= recorded[-1].items()):
      self._write('evaluate', step, **result, confusion_matrix=evaluation.confusion_matrix)
    picture = confusion_picture(np.array(evaluation.confusion_matrix), run.data.classes)
    image = tf.compat.v1.Summary.Image(
      height=picture.height, width=picture.width, colorspace=3, encoded_image_string=to_png(picture)
    )
    value = tf.compat.v1.Summary.Value(tag='pictures/confusion_matrix', image=image)
    folder = os.path.join(run.job_dir, split)
    metrics_log.write_summary(folder, step, tf.compat.v1.Summary(value=[value]))

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    self._write('end', step, reason=reason, message=message, seconds=self._run.seconds())

  def _write(self, name: str, step: int, **rest: Any) -> None:
    metrics_log.append(self._run.job_dir, name, step, self._run.cluster.name, **rest)


def log_changes(run: Run, config: Mapping[str, Any]) -> None:
  """Logs what is unlike before in a job: in its `config`, and what else its last start had."""
  described = json.loads(files.json_text(_described(run)))  # With lists in place of tuples.
  now = {**described['options'], 'data_set': described['data_set'], 'tasks': described['cluster']}
  del now['job_dir']  # Which may be moved.
  starts = [event for event in metrics_log.read(run.job_dir) if event['event'] == 'start']
  start = starts[-1] if starts else {'cluster': now['tasks']}
  was = {**start.get('options', {}), 'tasks': start.get('cluster'), **config}
  changed = [name for name in now if was.get(name, now[name]) != now[name]]
  if changed:
    said = ', '.join(f'{name} {was[name]} -> {now[name]}' for name in changed)
    log.info('unlike before in this job: %s', one_line(said))


def _described(run: Run) -> dict[str, Any]:
  """Returns what a start tells of versions, hardware, options and data."""
  return {
    'versions': {
      'program': cifar10.__version__,
      'python': platform.python_version(),
      'tensorflow': tf.__version__,
      'numpy': np.__version__,
    },
    'hardware': devices.described_hardware(),
    'options': {**values(run.options), **all_values(run.hparams)},
    'data_set': run.data.to_json(),
    'data_dir': run.options.data_dir and files.absolute(run.options.data_dir),
    'examples_per_epoch': run.examples_per_epoch,
    'examples_per_step': run.examples_per_step,
    'train_steps': run.last_step,
    'cluster': {job: len(tasks) for job, tasks in run.cluster.addresses.items()},
    'command': sys.argv,
    'seconds': run.seconds_before,
  }


def confusion_picture(matrix: np.ndarray, classes: Sequence[str]) -> Image.Image:
  """Draws int [true class, predicted class]: a cell is the darker the larger its share of its row.

  Of more than 200 classes the RGB picture has only shades, a pixel a cell.
  """
  shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
  shades = np.round(255 + (np.array(_DARKEST) - 255) * shares[..., np.newaxis]).astype(np.uint8)
  if len(classes) > _MOST_CLASSES:
    return Image.fromarray(shades)
  size = 20 if len(classes) <= 30 else 10  # Of letters, in pixels.
  font, cell = ImageFont.load_default(size), 3 * size  # Five digits wide.
  names = [f'{ascii(name)[1:-1]:.20} {label}' for label, name in enumerate(classes)]
  left = math.ceil(max(map(font.getlength, names))) + 2 * _MARGIN
  side = cell * len(names)
  picture = Image.new('RGB', (left + side, cell + side), 'white')
  cells = Image.fromarray(shades).resize((side, side), Image.Resampling.NEAREST)
  picture.paste(cells, (left, cell))
  pen = ImageDraw.Draw(picture)
  pen.fontmode = '1'  # Letters without grey: the file then has 15 KB, not 70.
  for label, name in enumerate(names):
    middle = cell * (label + 0.5)
    pen.text((left - _MARGIN, cell + middle), name, 'black', font, 'rm')
    pen.text((left + middle, cell / 2), str(label), 'black', font, 'mm')
  for (row, column), times in np.ndenumerate(matrix):
    center = left + cell * (column + 0.5), cell * (row + 1.5)
    ink = 'white' if shares[row, column] > 0.45 else 'black' if times else 'gray'
    pen.text(center, str(times), ink, font, 'mm')
  return picture


def to_png(picture: Image.Image) -> bytes:
  file = io.BytesIO()
  picture.save(file, 'PNG')
  return file.getvalue()
