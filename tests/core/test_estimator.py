"""The one place that knows TensorFlow's releases: what was not tested is refused in one line."""

import pytest
import tensorflow as tf

from cifar10.core import estimator_package
from cifar10.core.errors import InputError


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
