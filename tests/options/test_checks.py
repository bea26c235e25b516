"""Options that do not fit each other are refused whoever makes them, from Python, too."""

import os

import pytest

from cifar10.cluster import tf_config
from cifar10.cluster.tf_config import Cluster
from cifar10.core import option
from cifar10.core.errors import InputError
from cifar10.options import checks
from cifar10.options.hparams import Augmentation, HParams, from_values
from cifar10.options.run_options import RunOptions

WORKERS = {'chief': ('a:1',), 'worker': ('b:1', 'c:1')}
SERVED = Cluster({**WORKERS, 'ps': ('d:1',)})


def check(hparams, options, cluster, mode):
  checks.check_run(hparams, options, mode)
  tf_config.check_options(hparams, options, cluster, mode)


def test_a_source_that_nothing_would_evaluate_is_refused():
  hparams, options = from_values({'validation_source': 'a:b'}), RunOptions('job', subset='eval')
  said = '--validation-source a:b is not evaluated with --subset eval; leave one out'
  with pytest.raises(InputError, match=said):
    checks.check_run(hparams, options, 'train_and_evaluate')
  checks.check_run(hparams, options, 'evaluate')


def test_a_triangle_leaves_phases_without_effect():
  given = {'lr_triangle': (0.2, 0.1, 0.0), 'lr_values': (1.0, 0.1), 'lr_boundaries_steps': (5,)}
  said = '--lr-values 1.0,0.1 has no effect with --lr-triangle; leave one out'
  with pytest.raises(InputError, match=said):
    checks.check_needs(given, from_values(given), RunOptions('job'))


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    ({'backup_workers': 1, 'distribute': 'multi_worker_mirrored'}, 'leave --backup-workers 1 out'),
  ],
)
def test_options_that_exclude_each_other_cannot_be_made(given, message):
  with pytest.raises(InputError) as error:
    RunOptions('job', **given)
  assert message in str(error.value)


@pytest.mark.parametrize(
  ('given', 'hparams', 'cluster', 'message'),
  [
    ({'sync': True, 'backup_workers': 3}, {}, SERVED, '--backup-workers 3 of 3'),
    ({}, {'lookahead_steps': 5}, SERVED, '--lookahead-steps 5 needs updates that all workers make'),
    ({'profile_steps': '9:11'}, {'train_steps': 10}, Cluster(), 'goes beyond the last step, 10'),
    ({'stop_without_gain': 3}, {}, SERVED, '--stop-without-gain 3 needs an evaluator'),
    ({'use_ema': True}, {}, Cluster(), 'was trained without --ema-decay'),
    ({'distribute': 'multi_worker_mirrored'}, {}, SERVED, 'uses no parameter servers'),
  ],
)
def test_a_run_is_checked_against_its_cluster_and_what_it_trains(given, hparams, cluster, message):
  options = RunOptions('job', **given)
  with pytest.raises(InputError) as error:
    check(HParams(**hparams), options, cluster, 'train_and_evaluate')
  assert message in str(error.value)


def test_what_fits_is_accepted():
  options = RunOptions('job', sync=True, backup_workers=2, profile_steps='9:10')
  check(HParams(train_steps=10, lookahead_steps=5), options, SERVED, 'train')
  with_evaluator = Cluster(SERVED.addresses, has_evaluator=True)
  options = RunOptions('job', stop_at_accuracy=0.9)
  check(HParams(), options, with_evaluator, 'train_and_evaluate')


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    ({'examples_per_epoch': 5}, '--examples-per-epoch 5 belongs to --source; add it'),
    ({'backup_workers': 1}, '--backup-workers 1 belongs to --sync; add it'),
    ({'tta_below': 0.5}, '--tta-below 0.5 belongs to --tta; add it'),
    (
      {'tta_below': 0.5, 'tta': 'none'},
      '--tta-below 0.5 has no effect with --tta none; leave one out',
    ),
    (
      {'crop_padding': 0, 'padding_mode': 'reflect'},
      '--padding-mode reflect has no effect with --crop-padding 0; leave one out',
    ),
    (
      {'cutout': 8, 'use_distortion_for_training': False},
      '--cutout 8 has no effect with --use-distortion-for-training False; leave one out',
    ),
  ],
)
def test_an_option_that_another_one_makes_void_is_refused(given, message):
  with pytest.raises(InputError, match=message):
    check_needs(given)


def test_a_value_that_changes_nothing_needs_no_other_option():
  check_needs({'backup_workers': 0, 'tta_below': 1.0, 'flip': 'random'})
  check_needs({'tta': 'mirror', 'tta_below': 0.5, 'cutout': 8})
  # A recipe's and a job's own are not given: here --recipe fast94 --tta none.
  checks.check_needs({'tta': 'none'}, HParams(tta='none', tta_below=0.6), RunOptions('job'))


def check_needs(given):
  hparams = from_values(option.picked(HParams, given) | option.picked(Augmentation, given))
  options = RunOptions('job', **option.picked(RunOptions, given))
  checks.check_needs(given, hparams, options)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({}, '--deterministic, but workers update as they come along; add --sync'),
    (
      {'sync': True, 'backup_workers': 1},
      '--backup-workers 1',
    ),
  ],
)
def test_deterministic_refuses_what_the_faster_one_decides(options, message):
  with pytest.raises(InputError, match=message):
    check(HParams(), RunOptions('job', deterministic=True, **options), SERVED, 'train')


def test_deterministic_takes_what_nobody_decides():
  check(HParams(), RunOptions('job', deterministic=True), Cluster(), 'train')
  check(HParams(), RunOptions('job', deterministic=True, sync=True), SERVED, 'train')


def test_a_number_is_given_in_steps_or_in_epochs():
  with pytest.raises(InputError, match='--train-steps 100 and --train-epochs'):
    checks.check_units({'train_steps': 100, 'train_epochs': 2.0})


@pytest.mark.parametrize('kind', ['pipe', 'link'])
def test_what_a_file_would_replace_is_no_out(tmp_path, kind):
  """As /dev/stdout, which root could replace."""
  path = tmp_path / 'page.html'
  if kind == 'pipe':
    os.mkfifo(path)
  else:
    path.symlink_to(tmp_path / 'nowhere')
  with pytest.raises(InputError, match=f'--out {path} is a link or a device'):
    checks.check_out(str(path))
