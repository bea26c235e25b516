"""What each task of a cluster does, as its options say."""

import pytest

from cifar10.cluster import roles
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.options.run_options import RunOptions

CHIEF = {'chief': ('a:1',)}
SERVED = {'chief': ('a:1',), 'worker': ('b:1', 'b:2'), 'ps': ('c:1',)}
REDUCED = {'chief': ('a:1',), 'worker': ('b:1', 'b:2')}
SYNC = {'sync': True}
BETWEEN = {'distribute': 'multi_worker_mirrored'}


@pytest.mark.parametrize(
  ('cluster', 'options', 'evaluates', 'counted'),
  [
    # Evaluates on the way, and at the end. Gradients an update; whether a run of the session is a
    # global step; how many of 12 this task has made; whether its batches move batch norms'
    # averages: where all make a step together, the chief's alone. A backup worker's batch is
    # dropped; --sync without workers is ignored.
    (Cluster(), {}, (True, True), (1, True, 12, True)),
    (Cluster(CHIEF, has_evaluator=True), {}, (False, False), (1, True, 12, True)),
    (Cluster(SERVED), {}, (False, True), (1, False, 4, True)),
    (Cluster(SERVED, 'worker', 1), {}, (False, False), (1, False, 4, True)),
    (Cluster(SERVED), SYNC, (False, True), (3, True, 12, True)),
    (Cluster({**CHIEF, 'ps': ('c:1',)}), SYNC, (False, True), (1, False, 12, True)),
    (Cluster(SERVED), {**SYNC, 'backup_workers': 1}, (False, True), (2, True, 12, True)),
    (Cluster(SERVED, 'worker', 1), SYNC, (False, False), (3, False, 12, False)),
    (Cluster(REDUCED), BETWEEN, (False, True), (3, True, 12, True)),
    (Cluster(REDUCED, 'worker', 0), BETWEEN, (False, False), (3, False, 12, False)),
  ],
)
def test_what_a_task_does(cluster, options, evaluates, counted):
  role = roles.Role(cluster, RunOptions('job', **options))
  assert (role.evaluates_on_the_way, role.evaluates_at_the_end) == evaluates
  done = role.batches_done(12), role.updates_moving_averages
  assert (role.gradients_per_update, role.counts_steps, *done) == counted


def test_a_process_alone_and_an_evaluator_watch_nobody():
  assert type(roles.Role().monitor) is SignalMonitor
  assert roles.Role(Cluster(SERVED, 'evaluator', 0), RunOptions('job')).cluster.peers == {}
  assert type(roles.Role(Cluster(SERVED), RunOptions('job')).monitor) is not SignalMonitor
