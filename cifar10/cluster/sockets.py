"""Asks whether other tasks answer at their addresses, and listens at this task's own."""

import socket
import threading
import time
from collections.abc import Mapping


def reachable(address: str) -> bool:
  """Tells whether a process listens at 'host:port'."""
  return knock(address) is None


def knock(address: str) -> OSError | None:
  """Connects to 'host:port' and hangs up; returns the error that prevents it."""
  host, port = place(address)
  try:
    socket.create_connection((host, port), timeout=1).close()
  except OSError as error:
    return error
  return None


def is_silent(error: OSError) -> bool:
  """Tells whether nothing answered: the cable is cut, or the host is off.

  Where a host answers that nobody listens, its kernel has ended the connections of who did.
  """
  return not isinstance(error, (ConnectionRefusedError, socket.gaierror))


def knock_at_all(addresses: Mapping[str, str]) -> dict[str, OSError]:
  """Returns an error for each name at whose address nobody listens; asks all at once.

  A name whose address is not known in two seconds counts as one.
  """
  found: dict[str, OSError | None] = {}

  def ask(name: str, address: str) -> None:
    found[name] = knock(address)

  # No pool, whose threads the process would wait for at its end.
  threads = [threading.Thread(target=ask, args=each, daemon=True) for each in addresses.items()]
  for thread in threads:
    thread.start()
  deadline = time.monotonic() + 2
  for thread in threads:
    thread.join(max(deadline - time.monotonic(), 0))
  answers = {name: found.get(name, TimeoutError()) for name in addresses}
  return {name: error for name, error in answers.items() if error is not None}


def listen(port: int) -> socket.socket:
  """Returns a socket that listens at all addresses of this host; raises OSError if it cannot."""
  both = socket.has_dualstack_ipv6()
  family = socket.AF_INET6 if both else socket.AF_INET
  return socket.create_server(('', port), family=family, reuse_port=True, dualstack_ipv6=both)


def place(address: str) -> tuple[str, int]:
  """Returns the host, without brackets, and the port of 'host:port'."""
  host, _, port = address.rpartition(':')
  return host.strip('[]'), int(port)
