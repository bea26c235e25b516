"""Flags of version 1 that are gone name what takes their place."""

import json

import pytest
from outcome import succeeded

import cifar10
from cifar10.options import gone


@pytest.mark.parametrize('words', [('--best-by', 'loss'), ('--best-by=loss',)])
def test_a_flag_that_is_gone_is_refused_with_a_remedy(run_here, words):
  ran = run_here('--job-dir', 'job', *words)
  assert ran.returncode == 2
  assert ran.stderr == f'error: --best-by is gone since version 2: {gone.FLAGS["--best-by"]}\n'


def test_the_python_call_refuses_it_too():
  with pytest.raises(cifar10.InputError, match='--best-by is gone since version 2'):
    cifar10.train('job', 'data', best_by='loss')


@pytest.mark.parametrize(('value', 'is_told'), [(0.6, False), (0.7, True)])
def test_an_old_job_goes_on_without_it(run_here, old_job, data_dir, value, is_told):
  config = json.loads((old_job / 'config.json').read_text())
  (old_job / 'config.json').write_text(json.dumps({**config, 'muon_momentum': value}))
  ran = run_here('--job-dir', old_job, '--data-dir', data_dir, '--mode', 'evaluate')
  assert succeeded(ran)['global_step'] == 8
  assert ('muon_momentum 0.7 of this job is gone' in ran.stderr) == is_told
