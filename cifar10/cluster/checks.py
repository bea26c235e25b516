"""Checks of options against the cluster and all-reduce. Does not need TensorFlow."""

from cifar10.cluster.tasks import Cluster
from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.options.checks import early_stopping_rules
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions


def check(hparams: HParams, options: RunOptions, cluster: Cluster, mode: str) -> None:
  """Raises InputError for options that do not fit the tasks; see `options.checks.check_run`."""
  if options.backup_workers >= cluster.num_workers:
    raise InputError(
      f'--backup-workers {options.backup_workers} of {cluster.num_workers} worker(s), the chief '
      'among them; leave at least one'
    )
  together = options.sync or options.distribute or not cluster.is_distributed
  if hparams.lookahead_steps and not together:
    raise InputError(
      f'--lookahead-steps {hparams.lookahead_steps} needs updates that all workers make together; '
      'use --sync or --distribute multi_worker_mirrored, or --lookahead-steps 0'
    )
  if not mode.startswith('train'):
    return
  if cluster.is_distributed or cluster.has_evaluator:
    files.check_shared('--data-dir', options.data_dir or '')
    files.check_shared('--job-dir', options.job_dir)
  if options.distribute:
    name = f'--distribute {options.distribute}'
    if cluster.num_ps:
      raise InputError(
        f'{name} uses no parameter servers and TF_CONFIG lists {cluster.num_ps}; leave one out'
      )
    if cluster.num_workers == 1:
      raise InputError(
        f'{name} needs a TF_CONFIG with a chief and workers; on one host leave it out, and give '
        '--num-gpus or --num-cpu-towers'
      )
  stops = early_stopping_rules(options)
  if stops and cluster.task_type != 'ps' and cluster.is_distributed and not cluster.has_evaluator:
    raise InputError(f'{stops[0]} needs an evaluator in a cluster; add one to TF_CONFIG')
  if options.deterministic and cluster.num_workers > 1:
    if not (options.sync or options.distribute):  # Who arrives first would decide the result.
      raise InputError(
        f'--deterministic, but {cluster.num_workers} workers update asynchronously, as fast as '
        'each comes along; add --sync'
      )
    if options.backup_workers:
      raise InputError(
        f'--deterministic, but with --backup-workers {options.backup_workers} the workers that '
        'come first make each update; leave --backup-workers out'
      )
