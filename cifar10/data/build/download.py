"""Downloads a published archive, resuming when the connection breaks."""

import http.client
import os
import time
import urllib.error
import urllib.request

from cifar10.core import logs, storage_errors
from cifar10.core.errors import InputError
from cifar10.core.logs import log

_ATTEMPTS = 5
_FIRST_PAUSE = 1.0  # seconds before the second attempt; doubles each time
_TIMEOUT = 30  # seconds without a byte
_BLOCK = 1 << 18  # bytes per read


def download(url: str, path: str, first_pause: float = _FIRST_PAUSE) -> None:
  """Downloads `url` to `path`, resuming from `path`.part if that exists.

  Args:
    url: the file to download.
    path: appears when the download is complete.
    first_pause: seconds before the second attempt; each further pause is twice as long.

  Raises:
    InputError: five attempts failed, or the server refused; the message says what to do.
    OSError: the disk is full.
  """
  pause = first_pause
  for attempt in range(1, _ATTEMPTS + 1):
    try:
      _fetch(url, path + '.part')
      os.replace(path + '.part', path)
      return
    except (OSError, http.client.HTTPException, ValueError) as error:
      if getattr(error, 'errno', None) in storage_errors.FULL:
        raise  # Of the disk, not of the network.
      if isinstance(error, urllib.error.HTTPError) and error.code == 416:
        os.remove(path + '.part')  # It is longer than the file, so it belongs to another one.
      refused = isinstance(error, ValueError) or (
        isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404, 410)
      )
      if refused or attempt == _ATTEMPTS:
        raise InputError(
          f'{url} could not be downloaded ({error}); put the archive at {path} or name it with '
          '--archive FILE'
        ) from error
      log.info('download interrupted (%s); trying again in %.0f s', error, pause)
      time.sleep(pause)
      pause *= 2


def _fetch(url: str, part: str) -> None:
  """Appends to `part` what is missing of `url`; raises OSError if the connection ends early."""
  done = os.path.getsize(part) if os.path.exists(part) else 0
  request = urllib.request.Request(url, headers={'Range': f'bytes={done}-'} if done else {})
  with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
    resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
    if resumed and not response.headers.get('Content-Range', '').startswith(f'bytes {done}-'):
      raise OSError('the server sent a range other than the requested one')
    start = done if resumed else 0  # A server that ignores Range sends the whole file.
    left = response.headers.get('Content-Length')
    total = start + int(left) if left else None
    bar = logs.bar(
      total=total, initial=start, unit='B', unit_scale=True, desc=os.path.basename(url)
    )
    with open(part, 'ab' if resumed else 'wb') as file, bar:
      while block := response.read(_BLOCK):
        file.write(block)
        bar.update(len(block))
      if total is not None and file.tell() != total:
        raise OSError(f'the connection ended after {file.tell()} of {total} bytes')
