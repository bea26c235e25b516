"""Flags of version 1 that are gone name what takes their place."""

import pytest

import cifar10
from cifar10.options import gone


@pytest.fixture(autouse=True)
def one_gone(monkeypatch):
  monkeypatch.setitem(gone.FLAGS, '--old-option', 'use --seed in its place')


@pytest.mark.parametrize('words', [('--old-option', '3'), ('--old-option=3',)])
def test_a_flag_that_is_gone_is_refused_with_a_remedy(run_here, words):
  ran = run_here('--job-dir', 'job', *words)
  assert ran.returncode == 2
  assert ran.stderr == ('error: --old-option is gone since version 2: use --seed in its place\n')


def test_the_python_call_refuses_it_too():
  with pytest.raises(cifar10.InputError, match='--old-option is gone since version 2'):
    cifar10.train('job', 'data', old_option=3)
