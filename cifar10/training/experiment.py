"""The experiment of a job: the Estimator and the two specs that `train_and_evaluate` takes."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.core.option import flag_of
from cifar10.core.user_code import imported
from cifar10.data import input_pipeline
from cifar10.data.augmentation import own_augmentation
from cifar10.data.python_source import PythonSource
from cifar10.job import checkpoints
from cifar10.job.run import Run
from cifar10.networks import fastnet
from cifar10.options.hparams import all_values
from cifar10.training import schedules, warm_start
from cifar10.training.estimator import checkpoint, tf_config
from cifar10.training.evaluator import Examples
from cifar10.training.model_fn import Training
from cifar10.training.network_builder import OwnNetworkHook
from cifar10.training.trainer import JobEstimator
from estimator_again import estimator as tf_estimator


class Experiment(NamedTuple):
  """What `tf.estimator.train_and_evaluate` takes: `train_and_evaluate(*experiment)`."""

  estimator: JobEstimator
  train_spec: tf_estimator.TrainSpec
  eval_spec: tf_estimator.EvalSpec


def train_and_evaluate(run: Run) -> dict[str, Any]:
  """Trains to the last step with evaluations on the way, then evaluates the test split once.

  In a cluster the chief and the workers train, each with this call; on the way only an evaluator
  that TF_CONFIG lists evaluates, and it makes the last evaluation in place of the chief, too.

  Returns the last evaluation, as the program prints it; for a worker, its name and steps; for a
  chief with an evaluator, the last checkpoint. Raises InputError where data are missing or not the
  job's, the towers cannot share a batch, or the loss became NaN; Terminated after SIGTERM, Ctrl-C
  or SIGHUP, when the chief has saved.
  """
  experiment = make_experiment(run)
  with tf_config(run.cluster):
    tf_estimator.train_and_evaluate(*experiment)
  estimator = experiment.estimator
  if not run.role.evaluates_at_the_end:
    return _trained(run, estimator)
  return {**estimator.evaluator.evaluated(run.final_split), 'ended_by': estimator.ended_by}


def train(run: Run, hooks: Sequence[Any] = ()) -> dict[str, Any]:
  """Trains to the last step with more hooks, without evaluations; returns the last checkpoint."""
  estimator, spec, _ = make_experiment(run, with_evaluations=False)
  estimator.train(spec.input_fn, [*spec.hooks, *hooks], max_steps=spec.max_steps)
  return _trained(run, estimator)


def _trained(run: Run, estimator: JobEstimator) -> dict[str, Any]:
  """Returns what was trained, as the program prints it."""
  if not run.is_chief:
    return {'task': run.cluster.name, 'steps': estimator.task_hook.steps}
  path = checkpoint(run)
  step = checkpoints.global_step(path)
  return {'global_step': step, 'checkpoint': path, 'ended_by': estimator.ended_by}


def make_experiment(run: Run, *, with_evaluations: bool = True) -> Experiment:
  """Returns the Estimator and the two specs of a job's training; writes nothing.

  `with_evaluations` is False for --mode train. Raises InputError for data that are missing, towers
  that cannot share a batch, a user's own part that fails; what the job dir holds `train` checks.
  """
  hparams, examples = run.hparams, training_examples(run)
  hparams.family.describe()  # A user's own may fail.
  for name in ('optimizer', 'schedule', 'augmentation'):
    if own := all_values(hparams)[name]:
      imported(flag_of(name), own)
  input_pipeline.check_shards(hparams.train_batch_size, len(run.placement.tower_devices))
  input_pipeline.check_memory(hparams.train_batch_size, '--train-batch-size')
  count = examples.num_examples_per_epoch()
  config, num_gpus = run.session_config(), run.placement.num_gpus
  whitening, compiles = fastnet.prepare(hparams, examples.first_images, run.data, config, num_gpus)
  training = Training(run.role, count, whitening, compiles, warm_start.initializers(run))
  run = dataclasses.replace(for_training(run, count), evaluates=with_evaluations)
  estimator = JobEstimator(run, training, examples)
  if with_evaluations and run.role.evaluates_at_the_end:
    estimator.evaluator.check()  # Here, so that a damaged split is found before training.
  # A user's own network may fail in evaluation alone, hours from here.
  hooks = [OwnNetworkHook(run.hparams, run.data)] if hparams.family.PLACE else []
  batches = functools.partial(input_fn, run, examples)
  return Experiment(
    estimator,
    tf_estimator.TrainSpec(batches, max_steps=run.last_step, hooks=hooks),
    # Every checkpoint (no throttle), on every example of the split (`steps` None: to its end).
    tf_estimator.EvalSpec(estimator.evaluator.input_fn, steps=None, throttle_secs=0),
  )


def training_examples(run: Run) -> Examples:
  """Returns the examples to train on; raises InputError if a source cannot be found."""
  hparams = run.hparams
  if not hparams.source:
    return input_pipeline.Cifar10DataSet(
      run.data_dir,
      hparams.train_on,
      hparams.use_distortion_for_training,
      augmentation=hparams.augmentation,
    )
  return PythonSource(
    '--source',
    hparams.source,
    run.data.num_classes,
    num_workers=run.cluster.num_workers,
    examples_per_epoch=hparams.examples_per_epoch,
    augmentation=hparams.augmentation if hparams.use_distortion_for_training else None,
  )


def for_training(run: Run, examples_per_epoch: int) -> Run:
  """Returns the run with what only a training knows: its epoch, and its length in steps."""
  hparams = run.hparams
  if epochs := hparams.train_epochs:
    steps = schedules.steps_of(epochs, examples_per_epoch, run.examples_per_step)
    hparams = dataclasses.replace(hparams, train_steps=steps)
  return dataclasses.replace(run, hparams=hparams, examples_per_epoch=examples_per_epoch)


def input_fn(run: Run, examples: Examples) -> tf.data.Dataset:
  """Returns a training's input, whose batches continue where the graph's global step stands."""
  size, worker = run.hparams.train_batch_size, run.cluster.worker
  first, seed = run.role.batches_done(input_pipeline.global_step()), run.hparams.seed
  batches = examples.make_batch(size, seed, worker, first * size)
  if own := run.hparams.augmentation.augmentation:
    batches = own_augmentation(batches, own, seed, worker, first)
  return input_pipeline.cut(batches, len(run.placement.tower_devices))
