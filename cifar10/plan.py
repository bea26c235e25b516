"""Checks a command before TensorFlow is loaded: its options, the job's, and the cluster's."""

import dataclasses
import os
import threading
from typing import Any, NamedTuple

from cifar10.cluster import tf_config
from cifar10.cluster.tf_config import Cluster
from cifar10.core import files, limits
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.core.option import picked
from cifar10.job import job_config, pretrained
from cifar10.options import checks, flags, gone
from cifar10.options.hparams import HParams, from_values
from cifar10.options.run_options import RunOptions


class Plan(NamedTuple):
  """A checked command: what to run."""

  command: flags.Command
  hparams: HParams
  options: RunOptions
  cluster: Cluster


def check(command: flags.Command) -> Plan:
  """Checks all that does not need TensorFlow, and sets what TensorFlow reads on import.

  Raises:
    InputError: options do not fit the mode, the job, the cluster or each other.
  """
  options = RunOptions(**picked(RunOptions, command.given))
  checks.check_mode(command.mode, options, command.images, command.dry_run, command.out)
  training = command.mode.startswith('train')
  cluster = _cluster(options) if training else Cluster()  # TF_CONFIG's tasks train.
  if options.pretrained:
    options, found = pretrained.as_job(options)
    config: dict[str, Any] | None = found
  else:
    read = job_config.read_begun if training else job_config.read_config
    config = read(options.job_dir)
  hparams = _hparams(command, config, options.job_dir, training)
  checks.check_needs(command.given, hparams, options)
  checks.check_run(hparams, options, command.mode)
  # A source runs in a thread of its own, and may go to another folder there; so may the program's
  # main thread while another one trains.
  is_beside = training and threading.current_thread() is not threading.main_thread()
  if hparams.source or hparams.validation_source or is_beside:
    folders = (options.job_dir, options.data_dir or '')
    job_dir, data_dir = (path and files.absolute(path) for path in folders)
    options = dataclasses.replace(options, job_dir=job_dir, data_dir=data_dir or None)
  files.check_no_pattern(options.job_dir, '--job-dir')
  if cluster.addresses or options.distribute or options.backup_workers:
    tf_config.check_options(hparams, options, cluster, command.mode)
  # GPU memory is allocated as needed, because another process may use the GPU.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  # TensorFlow's threads are those of its first session or function, which may have no settings.
  asked = {'INTRA': options.num_intra_threads, 'INTER': options.num_inter_threads}
  for kind, number in asked.items():
    name = f'TF_NUM_{kind}OP_THREADS'
    if threads := limits.threads(number):
      os.environ[name] = str(threads) if number else os.environ.get(name, str(threads))
  if cluster.task_type in ('ps', 'evaluator'):  # The flags are for workers, which have the GPUs.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    options = dataclasses.replace(options, num_gpus=0, variable_strategy='CPU', data_format=None)
  return Plan(command, hparams, options, cluster)


def _hparams(
  command: flags.Command, config: dict[str, Any] | None, job_dir: str, training: bool
) -> HParams:
  """Returns the given options, and for all others those of the job's configuration."""
  if config:
    for name, unchanged in gone.LEARNING.items():
      if config.get(name, unchanged) != unchanged:
        log.warning('%s %s of this job is gone since version 2: ignored', name, config[name])
    return job_config.adopt_config(command.learning, config, job_dir, training=training)
  if not training:
    raise InputError(f'--job-dir {job_dir} holds no trained network; train one first')
  return from_values(command.learning)


def _cluster(options: RunOptions) -> Cluster:
  """Returns the cluster of TF_CONFIG, or a single process without it."""
  text = os.environ.get('TF_CONFIG')
  if not text:
    return Cluster()
  num_ps_needed = 0 if options.distribute else 1
  return tf_config.read_cluster(text, options.job_dir, num_ps_needed)
