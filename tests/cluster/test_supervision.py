"""How a local cluster's tasks are watched over, with small processes in their place."""

import signal
import sys

import pytest

from cifar10 import local_cluster

ENDS = 'pass'
STAYS = 'import time; time.sleep(600)'
DIES = 'import os, time; time.sleep(1); os.kill(os.getpid(), 9)'


class Acted(local_cluster.LocalCluster):
  """A cluster whose tasks run the programs that a test gives them."""

  def __init__(self, **acts):
    self.acts = {f'{job} 0': program for job, program in acts.items()}
    super().__init__([], num_workers=1, num_ps=1)

  def command(self, name):
    return [sys.executable, '-c', self.acts[name]]


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
  monkeypatch.setattr(local_cluster, '_GRACE_SECONDS', 2)
  monkeypatch.setattr(local_cluster, '_FAREWELL_SECONDS', 4)


@pytest.mark.parametrize(
  ('acts', 'code'),
  [
    # What dies after the chief's end does not count; what stays, maybe waiting for it, is ended.
    ({'chief': ENDS, 'worker': DIES, 'ps': STAYS}, 0),
    ({'chief': ENDS, 'worker': STAYS, 'ps': DIES}, 0),
    ({'chief': STAYS, 'worker': STAYS, 'ps': DIES}, 137),
    ({'chief': DIES, 'worker': ENDS, 'ps': STAYS}, 137),
  ],
)
def test_a_death_before_the_chiefs_end_ends_all(acts, code):
  with Acted(**acts) as cluster:
    cluster.start()
    assert local_cluster._supervise(cluster) == code
    cluster.end()
    ends = {ENDS: 0, STAYS: -signal.SIGTERM, DIES: -signal.SIGKILL}
    assert cluster.codes() == {f'{job} 0': ends[act] for job, act in acts.items()}
