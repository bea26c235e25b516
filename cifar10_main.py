"""Trains, evaluates, exports and applies networks on CIFAR-10 and data sets like it.

  python cifar10_main.py --data-dir DATA --job-dir JOB

trains ResNet-44 for 80,000 steps, evaluates on the validation split on the way and on the test
split at the end, and prints the result as one JSON line. The same command resumes.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any

from cifar10.cluster.tasks import Cluster
from cifar10.core import errors, lazy_tf, logs, parts, storage_errors
from cifar10.core.errors import InputError
from cifar10.job import job_config
from cifar10.options import checks, flags
from cifar10.options.hparams import HParams, from_values
from cifar10.options.run_options import RunOptions


def main() -> None:
  """The command: parses and checks the flags, then runs one mode."""
  command = flags.parse(__doc__)
  options = RunOptions(**command.run)
  checks.check_mode(command.mode, options, command.images, command.dry_run)
  training = command.mode.startswith('train')
  cluster = _cluster(options) if training else Cluster()
  hparams = _hparams(command, options.job_dir, training)
  checks.check_run(hparams, options, command.mode)
  if cluster.addresses or options.distribute or options.backup_workers:
    parts.load('cluster_checks').check(hparams, options, cluster, command.mode)
  # Of a GPU's memory what is needed, when it is needed: another process may be there.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  if cluster.task_type in ('ps', 'evaluator'):  # The flags are the workers', who have the GPUs.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    options = dataclasses.replace(options, num_gpus=0, variable_strategy='CPU', data_format=None)
  if not command.verbose:
    lazy_tf.import_tensorflow()  # So late that --help and refusals do not wait for it.
  from cifar10.cluster import roles, signals  # noqa: PLC0415
  from cifar10.training.process import Process  # noqa: PLC0415

  logs.set_up(command.verbose)
  if command.dry_run:
    evaluating = command.mode == 'train_and_evaluate'
    with signals.SignalMonitor() as monitor:
      found = parts.load('dry_run').dry_run(
        hparams, options, cluster, monitor, evaluating=evaluating
      )
    errors.print_result(json.dumps(found))
    return
  role = roles.choose(cluster, options)
  # Prediction and export are over at once: SIGTERM may end them as it ends any program.
  ends_when_told = training or command.mode == 'evaluate'
  watching = role.monitor if ends_when_told else contextlib.nullcontext()
  with storage_errors.named('--job-dir', options.job_dir), watching:
    results = _run(command, Process(hparams, options, role))
  for result in results:
    errors.print_result(json.dumps(result))


def _hparams(command: flags.Command, job_dir: str, training: bool) -> HParams:
  """What the flags say, and of the rest what the job dir was trained with."""
  config = job_config.read_config(job_dir)
  if config:
    from cifar10.job import adopted_config  # noqa: PLC0415  (a new job adopts nothing)

    return adopted_config.adopt_config(command.learning, config, job_dir, training=training)
  if not training:
    raise InputError(f'--job-dir {job_dir} holds no trained network; train one first')
  return from_values(command.learning)


def _cluster(options: RunOptions) -> Cluster:
  """What TF_CONFIG says; without it a process alone."""
  text = os.environ.get('TF_CONFIG')
  if not text:
    return Cluster()
  num_ps_needed = 0 if options.distribute else 1
  return parts.load('tf_config').read_cluster(text, options.job_dir, num_ps_needed)


def _run(command: flags.Command, process: Any) -> Iterable[dict[str, Any]]:
  """One mode, or one task's part -> the JSON objects to print as they come, the result last."""
  from cifar10.training import evaluator, trainer  # noqa: PLC0415

  task_type = process.role.cluster.task_type
  if task_type == 'ps':
    return [parts.load('parameter_server').serve(process.role)]
  if task_type == 'evaluator':
    return [parts.load('follow').follow(process)]
  if command.mode == 'export':
    return [parts.load('export').export(process)]
  if command.mode == 'predict':
    predict = parts.load('predict').predict
    estimator, checkpoint = process.estimator(), process.checkpoint()
    return predict(estimator, command.images, checkpoint, process.data.classes)
  if command.mode == 'evaluate':
    return [evaluator.evaluate_once(process)]
  modes = {'train_and_evaluate': trainer.train_and_evaluate, 'train': trainer.train}
  return [modes[command.mode](process)]


if __name__ == '__main__':
  errors.run_command(main)
