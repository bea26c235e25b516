"""Downloads a published archive, resuming when the connection breaks."""

import http.client
import os
import time
import urllib.error
import urllib.request

from cifar10.core import files, logs
from cifar10.core.errors import InputError
from cifar10.core.logs import log

_ATTEMPTS = 5
_TIMEOUT = 30  # seconds without a byte
_REFUSALS = (401, 403, 404, 410)  # HTTP's codes after which another attempt is of no use.


def download(url: str, path: str, first_pause: float = 1) -> None:
  """Downloads `url` to `path`, resuming from `path`.part if that exists.

  Args:
    url: the file to download.
    path: appears when the download is complete.
    first_pause: seconds before the second attempt; each further pause is twice as long.

  Raises:
    InputError: five attempts failed, or the server refused.
    OSError: the disk is full.
  """
  for attempt in range(_ATTEMPTS):
    try:
      _fetch(url, path + '.part')
      os.replace(path + '.part', path)
      return
    except (OSError, http.client.HTTPException, ValueError) as error:
      code = error.code if isinstance(error, urllib.error.HTTPError) else None
      if getattr(error, 'errno', None) in files.FULL:
        raise  # Of the disk, not of the network.
      if code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        os.remove(path + '.part')  # It is longer than the file, so it belongs to another one.
      if isinstance(error, ValueError) or code in _REFUSALS or attempt == _ATTEMPTS - 1:
        raise InputError(
          f'{url} could not be downloaded ({error}); put the archive at {path} or name it with '
          '--archive FILE'
        ) from error
      pause = first_pause * 2**attempt
      log.info('download interrupted (%s); trying again in %.0f s', error, pause)
      time.sleep(pause)


def _fetch(url: str, part: str) -> None:
  """Appends to `part` what is missing of `url`; raises OSError if the connection ends early."""
  done = os.path.getsize(part) if os.path.exists(part) else 0
  request = urllib.request.Request(url, headers={'Range': f'bytes={done}-'} if done else {})
  with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
    # A server that ignores Range sends the whole file.
    start = done if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
    left = response.headers.get('Content-Length')
    total = start + int(left) if left else None
    bar = logs.bar(total=total, initial=start, unit='B', unit_scale=True)
    with open(part, 'ab' if start else 'wb') as file, bar:
      while block := response.read(1 << 18):
        file.write(block)
        bar.update(len(block))
      if total is not None and file.tell() != total:
        raise OSError(f'the connection ended after {file.tell()} of {total} bytes')
