"""Fetching from a real server that misbehaves."""

import http.server
import os
import resource
import signal
import threading

import numpy as np
import pytest

from cifar10.core.errors import InputError
from cifar10.data.build import archive

CONTENT = np.random.default_rng(0).bytes(300_000)


class Server(http.server.BaseHTTPRequestHandler):
  """Serves CONTENT as `server.behaviour` says; remembers the ranges it was asked for."""

  def do_GET(self):
    asked = self.headers.get('Range')
    self.server.asked.append(asked)
    if self.server.behaviour == 'missing':
      self.send_error(404)
      return
    start = 0
    if asked and self.server.behaviour != 'no range':
      start = int(asked[len('bytes=') : -1])
      self.send_response(206)
      self.send_header('Content-Range', f'bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}')
    else:
      self.send_response(200)
    self.send_header('Content-Length', str(len(CONTENT) - start))
    self.end_headers()
    drops = self.server.drops > 0
    self.server.drops -= 1
    self.wfile.write(CONTENT[start : start + 100_000] if drops else CONTENT[start:])

  def log_message(self, *arguments):
    pass


@pytest.fixture
def server():
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Server) as server:
    server.behaviour, server.drops, server.asked = 'range', 0, []
    server.url = f'http://127.0.0.1:{server.server_port}/cifar.tar.gz'
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


def fetch(url, path):
  archive.download(url, str(path), first_pause=0.01)


def test_goes_on_after_dropped_connections(server, tmp_path):
  server.drops = 2
  fetch(server.url, tmp_path / 'a')
  assert (tmp_path / 'a').read_bytes() == CONTENT
  assert os.listdir(tmp_path) == ['a']
  assert server.asked == [None, 'bytes=100000-', 'bytes=200000-']


def test_goes_on_with_an_earlier_runs_part(server, tmp_path):
  (tmp_path / 'a.part').write_bytes(CONTENT[:1234])
  fetch(server.url, tmp_path / 'a')
  assert (tmp_path / 'a').read_bytes() == CONTENT
  assert server.asked == ['bytes=1234-']


def test_a_missing_page_is_not_asked_for_again(server, tmp_path):
  server.behaviour = 'missing'
  with pytest.raises(InputError, match=r'404.*--archive FILE'):
    fetch(server.url, tmp_path / 'a')
  assert len(server.asked) == 1


def test_gives_up_after_five_attempts_and_keeps_the_part(server, tmp_path):
  server.behaviour, server.drops = 'no range', 99
  with pytest.raises(InputError, match='ended after 100000 of 300000 bytes'):
    fetch(server.url, tmp_path / 'a')
  assert len(server.asked) == 5
  assert os.listdir(tmp_path) == ['a.part']


def test_a_full_disk_is_not_the_network_s_fault(server, tmp_path):
  """100 kB are allowed of 300 kB; the second attempt would ask for the rest."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
  try:
    with pytest.raises(OSError, match='File too large'):
      fetch(server.url, tmp_path / 'a')
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)
  assert server.asked == [None]
