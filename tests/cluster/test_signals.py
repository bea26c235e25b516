"""Signals reach a main thread that is inside TensorFlow, and handlers are put back."""

import os
import signal
import threading
import time

import checkout
import pytest

from cifar10.cluster.signals import SignalMonitor
from cifar10.core import cli
from cifar10.core.errors import Terminated

pytestmark = pytest.mark.timeout(60)


@pytest.mark.usefixtures('hears_ctrl_c')
@pytest.mark.parametrize(('number', 'code'), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_wakes_a_main_thread_that_is_blocked(number, code):
  """Event.wait stands for a blocked session: no Python signal handler could set the event."""
  woken = threading.Event()
  with SignalMonitor() as monitor:
    monitor.wake = woken.set
    monitor.check()
    os.kill(os.getpid(), number)
    assert woken.wait(5)
    with pytest.raises(Terminated, match=number.name):
      monitor.check()
    with pytest.raises(SystemExit) as end:
      cli.run_command(monitor.check)
    assert end.value.code == code
    if number == signal.SIGINT:
      with pytest.raises(KeyboardInterrupt):  # The second Ctrl-C.
        os.kill(os.getpid(), number)
        time.sleep(5)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGHUP])
def test_what_a_shell_ignores_ends_nothing(number):
  """Ctrl-C behind `&`, and SIGHUP behind `nohup`."""
  before = signal.signal(number, signal.SIG_IGN)
  try:
    with SignalMonitor() as monitor:
      os.kill(os.getpid(), number)
      time.sleep(1)
      monitor.check()
  finally:
    signal.signal(number, before)


@pytest.mark.usefixtures('hears_ctrl_c')
def test_leaving_puts_signals_back():
  numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
  before = [signal.getsignal(number) for number in numbers]
  with SignalMonitor():
    for number, handler in zip(numbers, before):
      assert signal.getsignal(number) != handler
  assert [signal.getsignal(number) for number in numbers] == before
  assert signal.set_wakeup_fd(-1) == -1


WAITS = """
import os, signal, time
from cifar10.cluster import signals
signals._STOP_SECONDS = 1
with signals.SignalMonitor() as monitor:
  monitor.wake = lambda: time.sleep(60)
  os.kill(os.getpid(), signal.SIGTERM)
  time.sleep(60)
"""


def test_a_session_that_waits_for_who_is_cut_off_keeps_nobody():
  """Neither the main thread nor its waking ends."""
  ran = checkout.python('-c', WAITS, timeout=30)
  assert ran.returncode == 143
  assert 'the run did not end in 1 s after SIGTERM' in ran.stderr
