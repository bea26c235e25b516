"""The one place that knows TensorFlow's releases: what was not tested is refused in one line."""

import pytest
import tensorflow as tf

from cifar10.cluster import all_reduce, roles
from cifar10.cluster.tasks import Cluster
from cifar10.core import estimator_package
from cifar10.core.errors import InputError
from cifar10.options.run_options import RunOptions


@pytest.mark.parametrize('version', ['2.22.0', '2.16.1'])
def test_a_release_that_was_not_tested_is_refused(monkeypatch, version):
  monkeypatch.setattr(tf, '__version__', version)
  with pytest.raises(InputError) as error:
    estimator_package.restored()
  assert f'TensorFlow {version}' in str(error.value)
  assert 'requirements.txt' in str(error.value)


def test_a_missing_package_is_named(monkeypatch):
  monkeypatch.setattr(tf, '__version__', f'{estimator_package._TESTED}.0')
  monkeypatch.setattr(estimator_package, '_PACKAGE', 'no_such_package')
  with pytest.raises(InputError, match='without tensorflow-estimator'):
    estimator_package.restored()


def test_all_reduce_between_processes_needs_the_old_line(monkeypatch):
  monkeypatch.setattr(all_reduce, 'REDUCES_BETWEEN_PROCESSES', False)
  cluster = Cluster({'chief': ('a:1',), 'worker': ('b:1',)})
  options = RunOptions('job', distribute='multi_worker_mirrored')
  with pytest.raises(InputError, match=r'use parameter servers, or Python 3\.10 or 3\.11'):
    roles.choose(cluster, options)
