"""Kills commands and clusters, or fails their disk, and runs the same command again.

tests/faults.py does it at every call that changes a file, and at random moments: here at some.
benchmarks/results/faults.json has what came of the points that were tried.
"""

import shutil

import checkout
import faults
import pytest
from outcome import succeeded

ALONE = ('convert', 'train', 'stop', 'export')
CLUSTER = [pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.mark.skipif(not shutil.which('cc'), reason='faults.c needs a C compiler')
@pytest.mark.parametrize(
  ('command', 'sample'),
  [
    *(pytest.param(each, 6, marks=pytest.mark.slow) for each in ALONE),
    pytest.param('sync', 4, marks=CLUSTER),
    *(pytest.param(e, 9, marks=[*CLUSTER, pytest.mark.long]) for e in ('async', 'all-reduce')),
  ],
)
def test_some_of_all_instants(command, sample):
  """And as many random moments, of which a few may be later than the end."""
  outcomes = ['--outcomes', 'KILL,TORN,FULL,BROKEN,TIME', '--sample', sample]
  ran = checkout.python('tests/faults.py', command, *outcomes, timeout=1200)
  points = succeeded(ran)
  assert sum(points['points'].values()) == 2 * sample
  assert (points['failed'], points['unordered']) == (0, 0), ran.stderr
  assert points['missed'] <= 2, ran.stderr
  assert points['calls'] > 40 and points['renames'] > 1


SAVED = 'open model.ckpt-4.index.tempstate1|rename model.ckpt-4.index model.ckpt-4.index.tempstate1'
FLUSHED, LISTED = 'fsync model.ckpt-4.index', 'rename checkpoint checkpoint.tmp1'
DELETED, BEST_DELETED = 'unlink model.ckpt-0.index', 'unlink best/model.ckpt-0.index'
COPIED = 'open best/model.ckpt-4.index.1.tmp|fsync best/model.ckpt-4.index.1.tmp'
COPY_NAMED = 'rename best/model.ckpt-4.index best/model.ckpt-4.index.1.tmp'
BEST_LISTED = 'rename best/best.json best/best.json.1.tmp'


@pytest.mark.parametrize(
  ('calls', 'wrong'),
  [
    (['open a.1.tmp|fsync a.1.tmp|rename a a.1.tmp'], []),
    (['open a.1.tmp|rename a a.1.tmp'], [2]),
    (['open a.1.tmp|fsync a.1.tmp|write a.1.tmp|rename a a.1.tmp'], [4]),
    ([SAVED, FLUSHED, LISTED, DELETED], []),
    ([SAVED, LISTED, FLUSHED, DELETED], [3]),
    ([SAVED, FLUSHED, DELETED, LISTED], [4]),
    ([COPIED, COPY_NAMED, BEST_LISTED, BEST_DELETED], []),
    ([COPIED, BEST_LISTED, COPY_NAMED, BEST_DELETED], [3, 5]),
    ([COPIED, COPY_NAMED, BEST_DELETED, BEST_LISTED], [4]),
    (['open temp-1/written/a', 'rename export/1 temp-1/written'], [2]),
  ],
)
def test_order_before_a_loss_of_power(calls, wrong):
  """Names come after contents, lists after what they list, and what is deleted is in no list."""
  numbered = [f'{number} {call}' for number, call in enumerate('|'.join(calls).split('|'), 1)]
  assert [int(line.partition(' ')[0]) for line in faults.check_order(numbered)] == wrong
