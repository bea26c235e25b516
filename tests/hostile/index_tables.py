"""The table of a checkpoint's index, taken apart and written again with the right checksums.

TensorFlow checks sums before it looks at what they are of: a lie must have the right ones.
"""

import struct

_MAGIC = struct.pack('<Q', 0xDB4775248B80FB57)


def _crc_table():
  table = []
  for byte in range(256):
    for _ in range(8):
      byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)  # noqa: PLW2901
    table.append(byte)
  return table


_CRC = _crc_table()


def masked_crc(content):
  """CRC-32C as TensorFlow stores it."""
  crc = 0xFFFFFFFF
  for byte in content:
    crc = _CRC[(crc ^ byte) & 255] ^ (crc >> 8)
  crc ^= 0xFFFFFFFF
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number):
  """As protocol buffers write it; a negative one in 64 bits."""
  number &= (1 << 64) - 1
  written = b''
  while number >= 128:
    written += bytes([number & 127 | 128])
    number >>= 7
  return written + bytes([number])


def _read_varint(content, place):
  number = shift = 0
  while True:
    byte = content[place]
    place, number, shift = place + 1, number | (byte & 127) << shift, shift + 7
    if byte < 128:
      return number, place


def _numbers(content, place, count):
  numbers = []
  for _ in range(count):
    number, place = _read_varint(content, place)
    numbers.append(number)
  return numbers, place


def _in_block(block):
  [restarts] = struct.unpack('<I', block[-4:])
  key, place = b'', 0
  while place < len(block) - 4 - 4 * restarts:
    (shared, new, length), place = _numbers(block, place, 3)
    key = key[:shared] + block[place : place + new]
    place += new + length
    yield key, block[place - length : place]


def entries(index):
  """The (name, value) of an index file: b'' is the header's name."""
  (_, _, offset, size), _ = _numbers(index[-48:], 0, 4)
  for _, handle in _in_block(index[offset : offset + size]):
    (start, length), _ = _numbers(handle, 0, 2)
    yield from _in_block(index[start : start + length])


def block(items, restarts=None):
  """A block of a table, without its checksum."""
  content, places = b'', []
  for name, value in items:
    places.append(len(content))
    content += b'\0' + varint(len(name)) + varint(len(value)) + name + value
  places = restarts or places or [0]
  return content + struct.pack(f'<{len(places) + 1}I', *places, len(places))


def table(items, kind=b'\0', handle=None, restarts=None, *, footer=None, times=1):
  """An index file of these entries.

  Args:
    items: (name, value), sorted.
    kind: how the blocks say that they are compressed.
    handle: in place of where the entries' block is: (offset, size), or the bytes for that.
    restarts: in place of where entries begin.
    footer: the same of the block that says where the entries are.
    times: how often it says where they are.
  """
  content = b''

  def add(what):
    nonlocal content
    place = len(content)
    content += what + kind + struct.pack('<I', masked_crc(what + kind))
    return varint(place) + varint(len(what))

  found = add(block(items, restarts))
  if handle:
    found = handle if isinstance(handle, bytes) else b''.join(map(varint, handle))
  meta, index = add(block([])), add(block([(items[-1][0] + b'~', found)] * times))
  if footer:
    index = b''.join(map(varint, footer))
  return content + (meta + index).ljust(40, b'\0')[:40] + _MAGIC
