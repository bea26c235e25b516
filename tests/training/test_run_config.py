"""Flags and cluster reach the sessions and the Estimator."""

import os

from cifar10.cluster import roles
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import parse_cluster
from cifar10.job import run as job_run
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training.estimator import run_config

TF_CONFIG = (
  '{"cluster": {"master": ["a:1"], "worker": ["b:1"], "ps": ["c:1"], "evaluator": ["d:1"]},'
  ' "task": {"type": "worker", "index": 0}}'
)


def test_a_worker_of_a_cluster(tmp_path, monkeypatch):
  monkeypatch.setenv('TF_CONFIG', TF_CONFIG)
  options = RunOptions(str(tmp_path), str(tmp_path), keep_checkpoints=3)
  role = roles.Role(parse_cluster(TF_CONFIG), options, SignalMonitor())
  config = run_config(job_run.begin(HParams(seed=4), options, role))
  assert (config.model_dir, config.tf_random_seed) == (str(tmp_path), 4)
  assert config.keep_checkpoint_max == 3
  # As the Estimator reads it: the master is a chief, and the evaluator is not waited for.
  assert config.cluster_spec.as_dict() == {'chief': ['a:1'], 'worker': ['b:1'], 'ps': ['c:1']}
  assert (config.task_type, config.task_id, config.is_chief) == ('worker', 0, False)
  assert config.master == 'grpc://b:1'
  assert config.session_config.device_filters == ['/job:ps', '/job:worker/task:0']
  assert config.experimental_max_worker_delay_secs == 0
  assert os.environ['TF_CONFIG'] == TF_CONFIG  # As it was.
