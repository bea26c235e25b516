"""Runs a server of TensorFlow's tf.data service, which makes training batches for others.

  python -m cifar10.data_service dispatcher --address HOST:5050
  python -m cifar10.data_service worker --address HOST:5051 --dispatcher HOST:5050

One dispatcher shares the splits of the training data among any number of data workers, which read,
shuffle and augment. `cifar10_main.py --data-service HOST:5050` trains on their batches. A server
ends on SIGTERM with code 0.
"""

if __name__ == '__main__':  # Before the imports, which Ctrl-C must not interrupt.
  from cifar10.core.errors import run_process

  run_process('cifar10.data_service')

import argparse
import itertools
import os
import signal
import time
from typing import Any

from cifar10.cluster import sockets
from cifar10.cluster.sockets import is_loopback
from cifar10.core import cli, logs, start_tensorflow
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.core.option import ADDRESS, FUNCTION, Check
from cifar10.data.python_source import PythonSource


def main() -> None:
  """Runs the command: starts one server, and waits for SIGTERM."""
  flags = _parser().parse_args()
  if flags.role == 'dispatcher' and (flags.dispatcher or flags.source):
    raise InputError('--dispatcher and --source belong to a worker; leave them out')
  if flags.role == 'worker' and not flags.dispatcher:
    raise InputError('a worker needs --dispatcher HOST:PORT')
  # At once: stopping would wait for a dispatcher that may be gone, and for trainings that request
  # batches. Without a lock, for which a second signal would wait for ever.
  signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
  source = PythonSource(flags.source) if flags.source else None
  if source:
    source.check_shards('a data worker')
  start_tensorflow.start()
  logs.set_up(verbose=False)
  if flags.dispatcher:  # Or TensorFlow would wait for it, with Python's lock, and hear no signal.
    _wait_for(flags.dispatcher)
  server = _started(flags, source)
  if is_loopback(flags.address):
    sockets.keep_others_out(int(flags.address.rpartition(':')[2]))
  log.info('the data %s serves at %s', flags.role, flags.address)
  assert server
  while True:
    time.sleep(1)


def _wait_for(dispatcher: str) -> None:
  """Returns when the dispatcher can be reached; logs every 15 s that it cannot."""
  for second in itertools.count():
    if sockets.reachable(dispatcher):
      return
    if second % 15 == 0:
      log.info('waiting for the dispatcher (%s)', dispatcher)
    time.sleep(1)


def _started(flags: argparse.Namespace, source: PythonSource | None) -> Any:
  """Returns the server, and the objects that must live as long."""
  import tensorflow as tf  # noqa: PLC0415

  from cifar10.data.tf_data_service import Offer  # noqa: PLC0415

  service = tf.data.experimental.service
  port = int(flags.address.rpartition(':')[2])
  if sockets.reachable(f'127.0.0.1:{port}'):  # TensorFlow would share the port with it.
    raise InputError(
      f'--address {flags.address}: another process serves there; end it, or name another'
    )
  try:
    if flags.role == 'dispatcher':
      return service.DispatchServer(service.DispatcherConfig(port=port))
    offer = Offer(source, flags.address)
    config = service.WorkerConfig(flags.dispatcher, worker_address=flags.address, port=port)
    return service.WorkerServer(config), offer
  except tf.errors.OpError as error:
    reason = error.message.partition('\n')[0]
    raise InputError(f'--address {flags.address} cannot be listened at: {reason:.200}') from None


def _parser() -> argparse.ArgumentParser:
  parser = cli.OneLineParser(description=__doc__)
  add = parser.add_argument
  add('role', choices=('dispatcher', 'worker'), help='the kind of server')
  address = _checked(ADDRESS)
  where = 'address of this server; with 127.0.0.1 other hosts cannot reach it'
  add('--address', type=address, required=True, metavar='HOST:PORT', help=where)
  add('--dispatcher', type=address, metavar='HOST:PORT', help="address of a worker's dispatcher")
  source = 'for a worker: the function that trainings name by --source (docs/data.md)'
  add('--source', type=_checked(FUNCTION), metavar='MODULE:FUNCTION', help=source)
  return parser


def _checked(check: Check) -> Any:
  def parse(text: str) -> str:
    if not check.accepts(text):
      raise argparse.ArgumentTypeError(f'{text!r} {check.remedy}')
    return text

  return parse
