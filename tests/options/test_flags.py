"""Declarations as flags and as a page of the docs; flags of version 1 that are gone."""

import json

import checkout
import flag_page
import pytest
from outcome import succeeded

from cifar10.core.option import declarations, flag_of
from cifar10.options import flags

DECLARED = [
  declared
  for cls in {**flags.COMMON, **flags.FAMILIES}.values()
  for declared in declarations(cls)
  if declared.help
]


@pytest.mark.parametrize('declared', DECLARED, ids=lambda declared: declared.name)
def test_a_default_can_be_given_as_it_is_shown(declared):
  """What --help and docs/flags.md show is what the flag takes; they show no other."""
  if shown := flags.shown_default(declared):
    assert flags.parse('', [flag_of(declared.name), shown]) == {declared.name: declared.default}
  else:
    assert declared.default in (None, '', ())


def test_the_page_of_the_docs_is_made_from_the_declarations():
  assert checkout.read('docs/flags.md') == flag_page.page() + '\n', 'run make docs'


@pytest.mark.parametrize(('value', 'is_told'), [(0.6, False), (0.7, True)])
def test_an_old_job_goes_on_without_it(run_here, old_job, data_dir, value, is_told):
  config = json.loads((old_job / 'config.json').read_text())
  (old_job / 'config.json').write_text(json.dumps({**config, 'muon_momentum': value}))
  ended = ['--mode', 'train', '--train-steps', 8, '--num-gpus', 0]
  ran = run_here('--job-dir', old_job, '--data-dir', data_dir, *ended)
  assert succeeded(ran)['global_step'] == 8
  assert ('muon_momentum 0.7 of this job is gone' in ran.stderr) == is_told
