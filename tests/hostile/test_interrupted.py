"""Ctrl-C while TensorFlow is imported."""

import signal

import pytest
from harness import Case, cases

TITLE = 'Ctrl-C while TensorFlow is imported'
BEFORE = '6 of 20'
WAS = 'tracebacks of TensorFlow and Python'
NOW = 'one line, code 130'

_LIBRARIES = ('multiarray', 'libtensorflow_framework', '_pywrap_tensorflow', 'h5py')
CASES = [
  Case(
    f'{command} {later} s after {library}',
    command,
    (130,),
    fresh=True,
    signal=(signal.SIGINT, library, later),
  )
  for command in ('train', 'list')
  for library in _LIBRARIES
  for later in (0, 0.1, 0.3)
  if (command, later) != ('list', 0.3)  # It may be over by then.
]


@pytest.mark.usefixtures('hears_ctrl_c')
@cases(CASES)
def test_interrupted(run_case, case):
  run_case(case)
