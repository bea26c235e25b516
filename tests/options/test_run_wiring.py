"""Every run option reaches what it is for, and nothing else, as every hyper-parameter does.

It is changed in a whole job of a tiny network, by the command itself, and all that the job leaves
is observed: what differs must be what the table says. An option that stands in no table fails the
last test.
"""

import functools
import glob
import json
import os
import pathlib
import re

import pytest
from graphs import first_batches

from cifar10.api import _words
from cifar10.cluster import roles
from cifar10.cluster.tf_config import Cluster
from cifar10.core.option import names
from cifar10.job import metrics_log
from cifar10.job import run as job_run
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training import experiment

BASE = {
  'network': 'outside_parts:net',
  'callback': ('outside_parts:Teller',),
  'train_steps': 4,
  'eval_every_steps': 2,
  'train_batch_size': 4,
  'log_every': 1000,
}
# Of four evaluations none is better than the first.
CONSTANT = {**BASE, 'learning_rate': 1e-30, 'eval_every_steps': 1}


def observe(result, job):
  """What a command said, and what it left in the job dir, by kind."""
  end = json.loads(result.stdout.splitlines()[-1]) if result.returncode == 0 else {}
  events = metrics_log.read(job) if os.path.exists(f'{job}/metrics.jsonl') else []
  told = pathlib.Path(job, 'told.json')
  return {
    **(json.loads(told.read_text()) if told.exists() else {}),
    'refusal': re.findall('^error: .*', result.stderr, re.M),
    'the end': [end.get('ended_by'), end.get('global_step')],
    'last evaluation': [end.get('subset'), end.get('examples')],
    'saves': sorted({event['step'] for event in events if event['event'] == 'save'}),
    'splits': sorted({event['subset'] for event in events if event['event'] == 'evaluate'}),
    'evaluations': [event['step'] for event in events if event['event'] == 'evaluate'],
    'kept': sorted(map(os.path.basename, glob.glob(f'{job}/model.ckpt-*.index'))),
    'best': len(glob.glob(f'{job}/best/*.index')),
    'progress': len(re.findall('step .* images/s', result.stderr)),
    'heard': 'HEARD' in result.stdout,
  }


@pytest.fixture(scope='module')
def ran(run_shared, data_dir, tmp_path_factory):
  """Runs the command with these options, once a module, and observes the job."""

  @functools.cache
  def run(*options):
    job = str(tmp_path_factory.mktemp('wired') / 'job')
    words = _words({'data_dir': data_dir, 'job_dir': job, **dict(options)})
    return observe(run_shared(*words), job)

  return lambda options: run(*sorted(options.items()))


STOPS = {'the end', 'saves', 'evaluations', 'kept'}
# What is changed, what else holds, and what differs then. Several options stand in one row where
# each of them changes something that no other does.
JOBS = [
  (
    {
      'keep_checkpoints': 1,  # kept
      'keep_best': 2,
      'callback': (*BASE['callback'], 'outside_parts:Heard'),
      'log_every': 1e-6,  # progress
      'num_intra_threads': 1,
      'num_inter_threads': 3,
      'log_device_placement': True,
    },
    BASE,
    {'kept', 'best', 'heard', 'progress', 'intra threads', 'inter threads', 'logs devices'},
  ),
  (
    {
      'subset': 'validation',  # last evaluation, and evaluations: at the end none is made anew
      'save_every_steps': 1,  # saves, kept
      'num_cpu_towers': 2,
      'deterministic': True,
    },
    BASE,
    {'last evaluation', 'splits', 'evaluations', 'saves', 'kept', 'devices', 'deterministic'},
  ),
  (
    {'eval_every_steps': 4, 'subset': 'eval'},  # splits: on the way, too; and none is chosen by it
    BASE,
    {'saves', 'evaluations', 'kept', 'splits', 'best'},
  ),
  ({'stop_at_accuracy': 0}, BASE, STOPS),
  ({'stop_without_gain': 3}, CONSTANT, {'the end'}),  # At the last step itself, and no later.
  ({'max_minutes': 1e-9}, BASE, STOPS),
]


@pytest.mark.parametrize(
  ('change', 'base', 'expected'), JOBS, ids=[next(iter(change)) for change, *_ in JOBS]
)
def test_what_a_change_changes_of_a_job(ran, change, base, expected):
  before, after = ran(base), ran({**base, **change})
  assert {kind for kind in before if before[kind] != after[kind]} == expected


SERVED = {'chief': ('a:1',), 'worker': ('b:1', 'b:2'), 'ps': ('c:1',)}
SYNC = {'sync': True}


@pytest.mark.parametrize(
  ('given', 'spare'),
  [
    ({}, 3),
    (SYNC, 0),
    ({**SYNC, 'backup_workers': 1, 'deterministic': True}, 1),
    ({'distribute': 'multi_worker_mirrored', 'start_timeout': 5.0}, 0),
  ],
)
def test_what_a_task_waits_for(given, spare):
  """And how many workers may be missing; test_roles.py has how they share an update."""
  tasks = {name: SERVED[name] for name in SERVED if name != 'ps' or 'distribute' not in given}
  role = roles.Role(Cluster(tasks), RunOptions('job', **given))
  assert (role.together, role.is_sync) == (bool(given), 'sync' in given)
  assert (role.monitor._spare_workers, role._in_order) == (spare, 'deterministic' in given)
  assert role.monitor._start_timeout == given.get('start_timeout', 600)


def test_each_worker_draws_an_order_of_its_own(data_dir, tmp_path):
  options = RunOptions(str(tmp_path), data_dir=data_dir, num_gpus=0)
  seen = []
  for task in ('chief', 'worker'):
    run = job_run.begin(HParams(), options, roles.Role(Cluster(SERVED, task), options))
    batches = functools.partial(experiment.input_fn, run, experiment.training_examples(run))
    [(_, [labels])] = first_batches(batches)
    seen.append(labels.tolist())
  assert seen[0] != seen[1]


# Those of other modes, and what starts processes of its own: other tests give them.
ELSEWHERE = {
  *('job_dir', 'data_dir', 'checkpoint', 'num_gpus', 'pretrained', 'use_ema', 'warm_start_from'),
  *('format', 'variable_strategy', 'data_format', 'sync', 'backup_workers', 'distribute'),
  'start_timeout',
}


def test_every_run_option_has_a_row():
  changed = {name for change, *_ in JOBS for name in change}
  assert not changed & ELSEWHERE
  assert changed | ELSEWHERE == names(RunOptions)
