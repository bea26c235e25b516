"""Every Python block of docs/python.md runs, in order, as it stands but for fewer steps."""

import os
import re
import sys

import checkout
import numpy as np
import pytest

from cifar10.job import metrics_log


def blocks():
  for block in re.findall(r'```python\n(.*?)```', checkout.read('docs/python.md'), re.S):
    fewer = re.sub(r'train_steps=\d+', 'train_steps=4, train_batch_size=16', block)
    yield re.sub(r'eval_every_steps=\d+', 'eval_every_steps=1', fewer)


@pytest.mark.slow
def test_every_block_runs(data_dir, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [*sys.path, str(tmp_path)])
  (tmp_path / 'data').symlink_to(data_dir)
  (tmp_path / 'docs').symlink_to(os.path.join(checkout.ROOT, 'docs'))
  names = {}
  for block in blocks():
    if file := re.match(r'# (\w+\.py)\n', block):
      (tmp_path / file[1]).write_text(block)
    else:
      exec(compile(block, 'docs/python.md', 'exec'), names)
  assert [step for step, _ in names['curve']] == [1, 2, 3, 4]
  assert names['probabilities'].shape == (3, 10)
  np.testing.assert_allclose(names['probabilities'].sum(1), 1, rtol=1e-5)
  assert [event['step'] for event in metrics_log.read('job-tiny') if event['event'] == 'end'] == [4]
  assert len(names['table']) == 70
