"""TCP sockets: reachable addresses, detection of dead connections, blocking of other hosts.

TensorFlow creates its sockets itself without options for these, so they are looked up among the
process's open files, where the system lists them (Linux).
"""

import contextlib
import ctypes
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping

from cifar10.core.logs import log

PATIENCE_SECONDS = 60  # A shorter cut ends no connection; a longer one is an error on both sides.
_PROBE_SECONDS = 15  # Between two probes of a silent peer, which answers if it has hung up.
_KEEPALIVE = (
  (socket.SOL_SOCKET, 'SO_KEEPALIVE', 1),
  (socket.IPPROTO_TCP, 'TCP_KEEPIDLE', _PROBE_SECONDS),
  (socket.IPPROTO_TCP, 'TCP_KEEPINTVL', _PROBE_SECONDS),
)
_FILES = '/proc/self/fd'
_SO_ATTACH_FILTER = 26  # From asm-generic/socket.h; Python has no name for it.
# Classic BPF (linux/filter.h): code, jump if true, jump if false, value. Offsets from SKF_NET_OFF
# (negative) start at the IP header.
_LOAD_BYTE, _LOAD_WORD, _SHIFT_RIGHT, _IF_EQUAL, _RETURN = 0x30, 0x20, 0x74, 0x15, 0x06
_IP = 0xFFF00000
_FROM_LOOPBACK = (
  (_LOAD_BYTE, 0, 0, _IP),
  (_SHIFT_RIGHT, 0, 0, 4),  # The IP version.
  (_IF_EQUAL, 0, 3, 4),
  (_LOAD_WORD, 0, 0, _IP + 12),  # IPv4: the sender must be in 127.0.0.0/8.
  (_SHIFT_RIGHT, 0, 0, 24),
  (_IF_EQUAL, 8, 9, 127),
  (_LOAD_WORD, 0, 0, _IP + 8),  # IPv6: the sender must be ::1.
  (_IF_EQUAL, 0, 7, 0),
  (_LOAD_WORD, 0, 0, _IP + 12),
  (_IF_EQUAL, 0, 5, 0),
  (_LOAD_WORD, 0, 0, _IP + 16),
  (_IF_EQUAL, 0, 3, 0),
  (_LOAD_WORD, 0, 0, _IP + 20),
  (_IF_EQUAL, 0, 1, 1),
  (_RETURN, 0, 0, 0xFFFFFFFF),  # Accept the whole packet,
  (_RETURN, 0, 0, 0),  # or drop it.
)


def reachable(address: str, timeout: float = 1) -> bool:
  """Tells whether a process listens at 'host:port'."""
  return _knock(address, timeout) is None


def refuses(address: str) -> bool:
  """Tells whether the host of 'host:port' is there, and nobody listens."""
  return isinstance(_knock(address, 1), ConnectionRefusedError)


def _knock(address: str, timeout: float) -> OSError | None:
  """Connects and hangs up; returns the error that prevents it."""
  host, _, port = address.rpartition(':')
  try:
    socket.create_connection((host.strip('[]'), int(port)), timeout).close()
  except OSError as error:
    return error
  return None


def unreachable(addresses: Mapping[str, str], timeout: float = 1) -> dict[str, str]:
  """Returns those named addresses at which nobody listens; asks all at once.

  A name whose address is not known in twice the time counts as one.
  """
  found: dict[str, bool] = {}

  def ask(name: str, address: str) -> None:
    found[name] = reachable(address, timeout)

  # No pool, whose threads the process would wait for at its end.
  threads = [threading.Thread(target=ask, args=each, daemon=True) for each in addresses.items()]
  for thread in threads:
    thread.start()
  deadline = time.monotonic() + 2 * timeout
  for thread in threads:
    thread.join(max(deadline - time.monotonic(), 0))
  return {name: address for name, address in addresses.items() if not found.get(name)}


def is_loopback(address: str) -> bool:
  """Tells whether no other machine can reach this 'host:port'."""
  host = address.rpartition(':')[0]
  return host in ('localhost', '[::1]') or host.startswith('127.')


def watch_over() -> None:
  """Makes every connection fail when its other side is silent for PATIENCE_SECONDS.

  A process does not notice a cut cable: it would wait forever for an answer, even after the cable
  is repaired if the other side has closed the connection. TensorFlow has no keepalive towards its
  servers, and they end calls of clients that send one every few seconds. So the kernel probes the
  connections.
  """
  for connection in _tcp_sockets():
    # For unconfirmed data and for probes. By default a client waits a quarter of an hour, and
    # TensorFlow's servers 20 s.
    patience = 1000 * PATIENCE_SECONDS
    with contextlib.suppress(OSError):  # It may be closing just now, or have no such options.
      if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == patience:
        continue  # Setting it again would restart the kernel's timer.
      connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
      for level, name, value in _KEEPALIVE:
        connection.setsockopt(level, getattr(socket, name), value)


def keep_others_out(port: int) -> bool | None:
  """Makes the kernel drop packets of other hosts to this process's `port`.

  TensorFlow's server listens at all addresses, whatever address it is given.

  Returns:
    Whether this process listens there and the port is closed to others; None, after a log line,
    if this system has no packet filters or does not permit them.
  """
  try:
    return _filter(port)
  except OSError as error:
    log.info('other hosts can reach port %s: %s (SECURITY.md)', port, error.strerror)
    return None


def _filter(port: int) -> bool:
  """Filters packets for each socket at this port; returns whether one listens; raises OSError."""
  listens = False
  code = b''.join(struct.pack('HBBI', *instruction) for instruction in _FROM_LOOPBACK)
  buffer = ctypes.create_string_buffer(code, len(code))
  program = struct.pack('HP', len(_FROM_LOOPBACK), ctypes.addressof(buffer))
  for tcp in _tcp_sockets():
    if tcp.getsockname()[1] == port:
      tcp.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
      listens = listens or bool(tcp.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
  return listens


def _tcp_sockets() -> Iterator[socket.socket]:
  """Yields a duplicate of each TCP socket; none if the system has no such list."""
  try:
    files = os.listdir(_FILES)
  except OSError:
    return
  for file in files:
    with contextlib.suppress(OSError):  # Another thread has closed it in the meantime.
      if not os.readlink(f'{_FILES}/{file}').startswith('socket:'):
        continue
      with socket.socket(fileno=os.dup(int(file))) as tcp:
        if tcp.type == socket.SOCK_STREAM and tcp.family in (socket.AF_INET, socket.AF_INET6):
          yield tcp
