"""Options that do not fit each other are refused whoever makes them, from Python, too."""

import json

import pytest

from cifar10 import plan
from cifar10.core.errors import InputError

SERVED = {'chief': ['a:1'], 'worker': ['b:1', 'c:1'], 'ps': ['d:1']}


def check(tasks=None, **given):
  """As the command with these flags and a new job dir; as the chief of these tasks."""
  told = {'cluster': tasks, 'task': {'type': 'chief', 'index': 0}} if tasks else {}
  return plan.check({'job_dir': 'no job', 'data_dir': 'data', **given}, json.dumps(told))


@pytest.mark.parametrize(
  ('given', 'flag'),
  [
    ({'validation_source': 'a:b', 'subset': 'eval'}, '--validation-source'),
    ({'validation_source': 'a:b', 'train_on': 'train+validation'}, '--validation-source'),
    ({'source': 'no function'}, 'it must be package.module:function'),
    ({'lr_triangle': (0.2, 0.1, 0.0), 'lr_values': (1.0, 0.3, 0.1, 0.0)}, 'and --lr-values: leave'),
    ({'lr_triangle': (0.2, 0.1, 0.0), 'lr_boundaries_epochs': (1.0, 2.0, 3.0)}, 'epochs: leave'),
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
    ({'mode': 'predict', 'images': ['a.png'], 'out': 'a.txt'}, '--out'),
    ({'mode': 'predict', 'images': ['a.png'], 'out': 'gone/a.jsonl'}, '--out'),
    ({'mode': 'evaluate'}, '--job-dir'),
    ({'mode': 'export', 'pretrained': 'resnet20', 'job_dir': ''}, '--mode export needs --job-dir'),
    ({'data_dir': None}, '--data-dir'),
    # What another option makes void, or leaves without effect.
    ({'examples_per_epoch': 5}, '--examples-per-epoch'),
    ({'backup_workers': 1}, 'has no effect without --sync'),
    ({'tta_below': 0.5}, '--tta-below'),
    ({'crop_padding': 0, 'padding_mode': 'reflect'}, '--padding-mode'),
    ({'cutout': 8, 'use_distortion_for_training': False}, '--cutout'),
    ({'padding_mode': 'reflect', 'use_distortion_for_training': False}, '--padding-mode'),
    ({'optimizer': 'my:adam', 'nesterov': True}, '--optimizer and --nesterov: leave one'),
    ({'schedule': 'a:b', 'lr_triangle': (0.2, 0.1, 0.0)}, '--schedule and --lr-triangle'),
    # What does not fit the tasks of a cluster.
    ({'tasks': SERVED, 'sync': True, 'backup_workers': 3}, '--backup-workers 3 of 3'),
    ({'tasks': SERVED, 'lookahead_steps': 5}, '--lookahead-steps 5 needs common updates'),
    ({'tasks': SERVED, 'stop_without_gain': 3}, '--stop-without-gain 3 needs an evaluator'),
    ({'tasks': SERVED, 'distribute': 'multi_worker_mirrored'}, 'uses no ps'),
    ({'tasks': SERVED, 'deterministic': True}, 'workers update as they come'),
    ({'tasks': SERVED, 'deterministic': True, 'sync': True, 'backup_workers': 1}, 'who is late'),
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
    {'train_steps': 10, 'stop_at_accuracy': 0.9, 'deterministic': True},
    {'tasks': SERVED, 'sync': True, 'backup_workers': 2, 'lookahead_steps': 5},
    {'tasks': SERVED, 'sync': True, 'deterministic': True},
    {'tasks': {**SERVED, 'evaluator': ['e:1']}, 'stop_at_accuracy': 0.9},
  ],
)
def test_options_that_fit_are_taken(given):
  assert check(**given).options.job_dir == 'no job'


def test_what_a_file_would_replace_is_no_out():
  """Root could replace a device."""
  with pytest.raises(InputError, match='--out /dev/null is no file'):
    plan.check_out('/dev/null')
