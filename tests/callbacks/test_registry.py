"""Which callbacks a training has by itself, and which its options ask for."""

import pytest

from cifar10.callbacks import registry
from cifar10.cluster import roles
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.job import run as job_run
from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions

ALWAYS = {'BestCheckpoint', 'Metrics', 'Summaries', 'Control', 'Progress'}
CLUSTER = {name: ('a:1',) for name in ('chief', 'worker', 'ps', 'evaluator')}


@pytest.mark.parametrize(
  ('task', 'options', 'expected'),
  [
    ('', {}, ALWAYS),
    ('', {'keep_best': 0}, ALWAYS - {'BestCheckpoint'}),
    ('', {'profile_steps': '2:3'}, ALWAYS | {'Profile'}),
    ('', {'stop_at_accuracy': 0.0}, ALWAYS | {'EarlyStopping'}),  # Zero is a value like others.
    ('', {'max_minutes': 1.0}, ALWAYS | {'EarlyStopping'}),
    ('worker', {'max_minutes': 1.0, 'profile_steps': '2:3'}, {'Progress'}),
    ('evaluator', {'profile_steps': '2:3'}, ALWAYS - {'Control'}),
  ],
)
def test_a_callback_is_made_if_it_has_something_to_do(tmp_path, task, options, expected):
  options = RunOptions(job_dir=str(tmp_path), data_dir=str(tmp_path), num_gpus=0, **options)
  role = roles.Role(Cluster(CLUSTER, task) if task else Cluster(), options, SignalMonitor())
  run = job_run.begin(from_values({}), options, role)
  assert {type(each).__name__ for each in registry.make_all(run)} == expected
