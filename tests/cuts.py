"""Cuts the cable of one task's host while a cluster trains, and records what happens.

  python tests/cuts.py --data-dir data --out benchmarks/results/cuts.json

A cluster has a host for each task (tests/hosts.py), which needs root. Each combination of task,
mode and duration is a cluster that trains a ResNet-8 on a few images; some run side by side, since
they mostly wait. What was tried before stays in the file until it is tried again. A cut `inf` is
for good.
"""

import argparse
import concurrent.futures
import json
import math
import os
import re
import sys
import tempfile
import threading
import time

from checkout import ROOT

sys.path[:0] = [ROOT, os.path.join(ROOT, 'benchmarks')]

from cifar10.core import start_tensorflow  # noqa: E402

start_tensorflow.start()

import environment  # noqa: E402
import hosts  # noqa: E402

MODES = {  # Flags, workers, parameter servers.
  'async': ([], 1, 1),
  'sync': (['--sync'], 1, 1),
  'sync with a spare': (['--sync', '--backup-workers', 1], 2, 1),
  'all-reduce': (['--distribute', 'multi_worker_mirrored'], 1, 0),
}
JOBS = ('chief', 'worker', 'ps')
SECONDS = (5.0, 40.0, 300.0, math.inf)
SAVE_EVERY = 20
FOR_GOOD_TIMEOUT = 120  # --start-timeout where a cut is for good; 600 by default.
START_SECONDS = 900  # For a cluster to make its first steps, beside others.
AFTER_SECONDS = 200  # For all to go on once the cable is mended.
FOR_GOOD_SECONDS = 2 * FOR_GOOD_TIMEOUT + 200  # A parameter server waits once more for its chief.
FLAGS = ['--num-layers', 8, '--train-batch-size', 1, '--num-intra-threads', 1, '--log-every', 1]
FLAGS += ['--train-steps', 10**6, '--eval-every-steps', SAVE_EVERY]


class TimedTasks(hosts.HostedTasks):
  """Remembers when each line was said."""

  def __init__(self, *arguments, **settings):
    super().__init__(*arguments, **settings)
    self.at = []
    self._lock = threading.Lock()
    self._show = self._hear

  def _hear(self, *line):
    with self._lock:
      self.log.append(line)
      self.at.append(time.monotonic())

  def when(self, pattern, since, before=math.inf, names=None):
    """The seconds after `since` of all lines that match, from these tasks or from all."""
    with self._lock:
      lines = list(zip(self.log, self.at))
    return [
      round(at - since, 1)
      for (name, line), at in lines
      if since <= at < before and (names is None or name in names) and re.search(pattern, line)
    ]


def main():
  """Tries what was asked for, and keeps each outcome at once."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--data-dir', required=True, help='record files of a few images')
  parser.add_argument('--out', required=True, help='JSON; rows of other cuts in it stay')
  parser.add_argument('--seconds', type=_numbers, default=SECONDS, help='as 5,40,300,inf')
  parser.add_argument('--modes', type=lambda text: text.split(','), default=list(MODES))
  parser.add_argument('--at-once', type=int, default=4, help='clusters side by side')
  flags = parser.parse_args()
  if hosts.why_not():
    parser.error(hosts.why_not())
  cuts = [
    (job, mode, seconds)
    for seconds in flags.seconds
    for mode in flags.modes
    for job in JOBS
    if job != 'ps' or MODES[mode][2]
  ]
  described = environment.describe()
  with concurrent.futures.ThreadPoolExecutor(flags.at_once) as pool:
    for done in concurrent.futures.as_completed(
      [pool.submit(_attempt, flags.data_dir, *cut) for cut in cuts]
    ):
      row = {**done.result(), 'commit': described['commit']}
      print(json.dumps(row), file=sys.stderr, flush=True)
      _keep(flags.out, row, described)


def _keep(path, row, described):
  rows = {}
  if os.path.exists(path):
    with open(path, encoding='utf-8') as file:
      rows = {(old['task'], old['mode'], old['seconds']): old for old in json.load(file)['cuts']}
  rows[row['task'], row['mode'], row['seconds']] = row
  order = [str(seconds) for seconds in (*SECONDS[:-1], 'for good')]
  ordered = sorted(
    rows.values(),
    key=lambda each: (
      list(MODES).index(each['mode']),
      JOBS.index(each['task']),
      order.index(str(each['seconds'])),
    ),
  )
  record = {
    'name': 'cuts',
    'command': 'python tests/cuts.py --data-dir data --out benchmarks/results/cuts.json',
    'start_timeout_for_good_s': FOR_GOOD_TIMEOUT,
    **described,
    'cuts': ordered,
  }
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(record, file, indent=1)
    file.write('\n')


def _attempt(data_dir, job, mode, seconds):
  """One cluster, one cut -> a row of the table."""
  row = {'task': job, 'mode': mode, 'seconds': seconds if seconds < math.inf else 'for good'}
  flags, workers, ps = MODES[mode]
  if seconds == math.inf:
    flags = [*flags, '--start-timeout', FOR_GOOD_TIMEOUT]
  with (
    tempfile.TemporaryDirectory() as folder,
    hosts.Network(hosts.names(workers, ps)) as network,
    TimedTasks(
      network, folder, data_dir, [*FLAGS, *flags], num_workers=workers, num_ps=ps
    ) as tasks,
  ):
    try:
      tasks.start()
      tasks.until(lambda: tasks.step() >= SAVE_EVERY, START_SECONDS)
      return {**row, **_cut(tasks, f'{job} 0', seconds)}
    except AssertionError:
      return {**row, 'outcome': 'did not train', 'log': tasks.text()[-2000:]}


def _cut(tasks, victim, seconds):
  """Cuts, mends, and looks what all do -> the rest of the row."""
  replicas = [name for name in tasks.names if not name.startswith('ps')]
  tasks.network.cut(victim)
  cut_at = time.monotonic()
  ended = {}

  def monitor(limit, until=lambda: False):
    end = time.monotonic() + limit
    while time.monotonic() < end and len(ended) < len(tasks.names) and not until():
      for name, code in tasks.codes().items():
        ended.setdefault(name, {'code': code, 'after_s': round(time.monotonic() - cut_at, 1)})
      time.sleep(0.2)

  monitor(min(seconds, FOR_GOOD_SECONDS))
  mended_at = time.monotonic()
  others = [name for name in replicas if name != victim]
  after = cut_at + 2  # A line of the first two seconds can be of what came before the cut.
  went_on = bool(tasks.when('images/s', max(after, mended_at - 20), mended_at, others))
  moving = None

  def all_move():
    nonlocal moving
    firsts = [tasks.when('images/s', mended_at + 1, names=[name]) for name in replicas]
    moving = all(firsts) and 1 + max(first[0] for first in firsts)
    return moving

  if seconds < math.inf:
    tasks.network.mend(victim)
    monitor(AFTER_SECONDS, all_move)
  named = tasks.when('waiting for', cut_at)
  if len(ended) == len(tasks.names):
    outcome = 'all ended'
  elif set(ended) > {victim} or not (moving or (went_on and seconds == math.inf)):
    outcome = 'HUNG'
  else:
    outcome = 'others went on' if went_on else 'waited, then went on'
  return {
    'outcome': outcome,
    'first_named_after_s': named[0] if named else None,
    'times_named': len(named),
    'all_moving_s_after_mending': round(moving, 1) if moving else None,
    'chief_went_back_to_checkpoint': bool(tasks.when('resuming at', after)),
    'ended': ended,
    'errors': sorted({line.partition('error: ')[2] for _, line in tasks.log if 'error: ' in line}),
  }


def _numbers(text):
  return [float(number) for number in text.split(',')]


if __name__ == '__main__':
  main()
