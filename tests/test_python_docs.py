"""Every Python block of docs/python.md runs, in order, as it stands but for fewer steps."""

import http.server
import os
import re
import sys
import threading

import checkout
import numpy as np
import pytest

import cifar10
from cifar10.job import control_requests, metrics_log


def blocks(port):
  for block in re.findall(r'```python\n(.*?)```', checkout.read('docs/python.md'), re.S):
    fewer = re.sub(r'train_steps=\d+', 'train_steps=4, train_batch_size=16', block)
    fewer = re.sub(r'eval_every_steps=\d+', 'eval_every_steps=1', fewer)
    yield fewer.replace('127.0.0.1:8000', f'127.0.0.1:{port}')


class _Charts(http.server.BaseHTTPRequestHandler):
  """Keeps what is posted."""

  def do_POST(self):
    self.server.posted = self.rfile.read(int(self.headers['Content-Length']))
    self.send_response(200)
    self.end_headers()

  def log_message(self, *words):
    del words


@pytest.fixture
def charts():
  """A server of this machine."""
  with http.server.HTTPServer(('127.0.0.1', 0), _Charts) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.mark.slow
def test_every_block_runs(data_dir, tmp_path, monkeypatch, charts):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [*sys.path, str(tmp_path)])
  (tmp_path / 'data').symlink_to(data_dir)
  (tmp_path / 'docs').symlink_to(os.path.join(checkout.ROOT, 'docs'))
  names = {}
  for block in blocks(charts.server_port):
    if file := re.match(r'# (\w+\.py)\n', block):
      (tmp_path / file[1]).write_text(block)
    else:
      exec(compile(block, 'docs/python.md', 'exec'), names)
  assert [step for step, _ in names['curve']] == [1, 2, 3, 4]
  assert names['probabilities'].shape == (3, 10)
  np.testing.assert_allclose(names['probabilities'].sum(1), 1, rtol=1e-5)
  assert [event['step'] for event in metrics_log.read('job-tiny') if event['event'] == 'end'] == [4]
  assert len(names['table']) == 70
  assert charts.posted.startswith(b'\x89PNG')
  _check_the_disk_limit(tmp_path)
  _check_the_drop(tmp_path)


def _check_the_disk_limit(folder):
  (folder / 'one_byte.py').write_text(
    'import my_limits\n\ndef make(run):\n  return my_limits.DiskLimit(run, 1)\n'
  )
  small = {'num_layers': 8, 'train_batch_size': 16, 'train_steps': 4, 'save_every_steps': 1}
  result = cifar10.train('job-limit', 'data', mode='train', callback='one_byte:make', **small)
  assert result['global_step'] == 1
  assert result['ended_by'] == 'control'


def _check_the_drop(folder):
  """Without patience, after each of four evaluations: 0.1 times 0.1^4."""
  (folder / 'at_once.py').write_text(
    'import my_callback\n\ndef make(run):\n  return my_callback.DropWithoutGain(run, 0)\n'
  )
  small = {'num_layers': 8, 'train_batch_size': 16, 'train_steps': 4, 'eval_every_steps': 1}
  cifar10.train('job-drop-at-once', 'data', callback='at_once:make', **small)
  [rate] = control_requests.read_rates('job-drop-at-once').values()
  assert rate == pytest.approx(1e-5)
