"""The program's log: one line an event, on standard error."""

import logging

log = logging.getLogger('cifar10')


def set_up(verbose: bool = False) -> None:
  """Shows the program's own log, and TensorFlow's only when asked for."""
  logging.basicConfig(format='%(asctime)s %(message)s', datefmt='%H:%M:%S', level=logging.WARNING)
  log.setLevel(logging.INFO)
  logging.getLogger('tensorflow').setLevel(logging.INFO if verbose else logging.ERROR)
