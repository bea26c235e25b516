"""Options that do not fit each other are refused whoever makes them, from Python, too."""

import os

import pytest

from cifar10 import plan
from cifar10.cluster import tf_config
from cifar10.cluster.tf_config import Cluster
from cifar10.core.errors import InputError
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions

WORKERS = {'chief': ('a:1',), 'worker': ('b:1', 'c:1')}
SERVED = Cluster({**WORKERS, 'ps': ('d:1',)})


def check(**given):
  """As the command with these flags and a new job dir."""
  return plan.check({'job_dir': 'no job', 'data_dir': 'data', **given})


@pytest.mark.parametrize(
  ('given', 'flag'),
  [
    ({'validation_source': 'a:b', 'subset': 'eval'}, '--validation-source'),
    ({'validation_source': 'a:b', 'train_on': 'train+validation'}, '--validation-source'),
    ({'lr_triangle': (0.2, 0.1, 0.0), 'lr_values': (1.0, 0.1)}, '--lr-'),
    ({'use_ema': True}, '--use-ema'),
    ({'use_ema': True, 'ema_decay': 0.9, 'mode': 'train'}, '--use-ema'),
    ({'stop_at_accuracy': 0.9, 'mode': 'train'}, '--stop-at-accuracy'),
    ({'stop_without_gain': 2, 'train_on': 'train+validation'}, '--stop-without-gain'),
    ({'stop_without_gain': 2, 'subset': 'eval'}, '--stop-without-gain'),
    ({'train_steps': 100, 'train_epochs': 2.0}, '--train-steps'),
    ({'backup_workers': 1, 'sync': True, 'distribute': 'multi_worker_mirrored'}, '--distribute'),
    ({'checkpoint': 'best'}, '--checkpoint'),
    ({'pretrained': 'resnet20'}, '--pretrained'),
    ({'format': 'onnx'}, '--format'),
    ({'images': ['a.png']}, '--images'),
    ({'out': 'a.csv'}, '--out'),
    ({'mode': 'evaluate', 'dry_run': True}, '--dry-run'),
    ({'mode': 'predict', 'images': ['a.png'], 'subset': 'eval'}, '--images'),
    ({'mode': 'predict', 'images': ['a.png'], 'callback': ('a:b',)}, '--callback'),
    ({'mode': 'predict', 'images': ['https://a/b.png']}, '--images'),
    ({'mode': 'predict', 'images': ['a.png'], 'out': 'a.txt'}, '--out'),
    ({'mode': 'predict', 'images': ['a.png'], 'out': 'gone/a.csv'}, '--out'),
    ({'mode': 'evaluate'}, '--job-dir'),
    ({'data_dir': None}, '--data-dir'),
    # What another option makes void, or leaves without effect.
    ({'examples_per_epoch': 5}, '--examples-per-epoch'),
    ({'backup_workers': 1}, '--backup-workers'),
    ({'tta_below': 0.5}, '--tta-below'),
    ({'tta_below': 0.5, 'tta': 'none'}, '--tta-below'),
    ({'crop_padding': 0, 'padding_mode': 'reflect'}, '--padding-mode'),
    ({'cutout': 8, 'use_distortion_for_training': False}, '--cutout'),
  ],
)
def test_options_that_do_not_fit_are_refused(given, flag):
  with pytest.raises(InputError) as error:
    check(**given)
  assert flag in str(error.value)


@pytest.mark.parametrize(
  'given',
  [
    {'backup_workers': 0, 'tta_below': 1.0, 'flip': 'random'},
    {'tta': 'mirror', 'tta_below': 0.5, 'cutout': 8},
    {'recipe': 'fast94', 'tta': 'none'},  # Whose tta_below nobody has given.
    {'profile_steps': '9:10', 'train_steps': 10, 'stop_at_accuracy': 0.9},
  ],
)
def test_options_that_fit_are_taken(given):
  assert check(**given).options.job_dir == 'no job'


@pytest.mark.parametrize(
  ('given', 'hparams', 'cluster', 'message'),
  [
    ({'sync': True, 'backup_workers': 3}, {}, SERVED, '--backup-workers 3 of 3'),
    ({}, {'lookahead_steps': 5}, SERVED, '--lookahead-steps 5 needs common updates'),
    ({'stop_without_gain': 3}, {}, SERVED, '--stop-without-gain 3 needs an evaluator'),
    ({'distribute': 'multi_worker_mirrored'}, {}, SERVED, 'uses no ps'),
    ({'deterministic': True}, {}, SERVED, 'workers update as they come'),
    ({'deterministic': True, 'sync': True, 'backup_workers': 1}, {}, SERVED, 'who comes first'),
  ],
)
def test_a_run_is_checked_against_its_cluster(given, hparams, cluster, message):
  options = RunOptions('job', **given)
  with pytest.raises(InputError) as error:
    tf_config.check_options(HParams(**hparams), options, cluster)
  assert message in str(error.value)


def test_what_fits_a_cluster_is_accepted():
  options = RunOptions('job', sync=True, backup_workers=2)
  tf_config.check_options(HParams(lookahead_steps=5), options, SERVED)
  with_evaluator = Cluster(SERVED.addresses, has_evaluator=True)
  options = RunOptions('job', stop_at_accuracy=0.9)
  tf_config.check_options(HParams(), options, with_evaluator)
  tf_config.check_options(HParams(), RunOptions('job', deterministic=True), Cluster())
  options = RunOptions('job', deterministic=True, sync=True)
  tf_config.check_options(HParams(), options, SERVED)


def test_what_a_file_would_replace_is_no_out(tmp_path):
  """As /dev/stdout, which root could replace."""
  path = tmp_path / 'page.html'
  os.mkfifo(path)
  with pytest.raises(InputError, match=f'--out {path} is a folder, a link or a device'):
    plan.check_out(str(path))
