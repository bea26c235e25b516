"""A confusion matrix as a picture, labelled, with its counts."""

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from cifar10.callbacks import small_font

_ROWS, _COLUMNS = 'true class', 'predicted class'
_LONGEST = 20  # Letters of a label; a longer one is cut.
_FEW = 30  # Classes; letters and cells of more are smaller.
_MARGIN = 3  # Pixels, about each text: TensorBoard shrinks what is wide.
_DARKEST = (8, 48, 107)  # A blue, of a cell that has its whole row.
_DARK = 0.45  # A cell of at least this share has white digits.
_PALE = (170, 170, 170)  # The digit 0.


def draw(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> np.ndarray:
  """Counts in cells, which are the darker the larger a count's share of its row.

  Args:
    matrix: [true class][predicted class], counts.
    classes: the names, by label.

  Returns:
    uint8 [height, width, 3]; a row for each true class, a column for each predicted one.
  """
  counts = np.asarray(matrix).astype(int)
  scale = 2 if len(classes) <= _FEW else 1
  names = [_label(name, label) for label, name in enumerate(classes)]
  line = small_font.HEIGHT * scale + 2 * _MARGIN
  letter = small_font.WIDTH * scale
  for_titles = -(-len(_COLUMNS) * letter // len(names))
  cell = max(line, len(str(counts.max())) * letter + 2 * _MARGIN, for_titles)
  # Above and beside the cells: what rows or columns are, and then their names.
  edge = line + max(map(len, names)) * letter + 2 * _MARGIN
  side = cell * len(names)
  picture = np.full([edge + side + _MARGIN, edge + side + _MARGIN, 3], 255, np.uint8)
  _print(picture[:line, edge : edge + side], small_font.draw(_COLUMNS, scale))
  _print(picture[edge : edge + side, :line], np.rot90(small_font.draw(_ROWS, scale)))
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  for label, name in enumerate(names):
    start = edge + label * cell
    ink = small_font.draw(name, scale)
    beside = ink.shape[1] + 2 * _MARGIN  # Names end at the cells.
    _print(picture[start : start + cell, edge - beside : edge], ink)
    _print(picture[edge - beside : edge, start : start + cell], np.rot90(ink))
    for other, (count, share) in enumerate(zip(counts[label], shares[label])):
      left = edge + other * cell
      box = picture[start + 1 : start + cell, left + 1 : left + cell]
      box[:] = np.round(255 + (np.array(_DARKEST) - 255) * share)
      colour = (255, 255, 255) if share >= _DARK else (0, 0, 0) if count else _PALE
      _print(box, small_font.draw(str(count), scale), colour)
  return picture


def _label(name: str, label: int) -> str:
  """As there are letters for; else its number."""
  plain = small_font.plain(name) or f'class {label}'
  return plain if len(plain) <= _LONGEST else f'{plain[: _LONGEST - 2]}..'


def _print(box: np.ndarray, ink: np.ndarray, colour: tuple[int, int, int] = (0, 0, 0)) -> None:
  """Puts ink into the middle of a part of a picture."""
  top, left = ((outer - inner) // 2 for outer, inner in zip(box.shape, ink.shape))
  box[top : top + ink.shape[0], left : left + ink.shape[1]][ink] = colour


def to_png(picture: np.ndarray) -> bytes:
  """A PNG file of uint8 [height, width, 3]. TensorFlow's encoder would need a session.

  The format: W3C, "Portable Network Graphics", second edition; each row begins with filter 0.
  """
  height, width, _ = picture.shape
  rows = np.concatenate([np.zeros([height, 1], np.uint8), picture.reshape(height, -1)], 1)
  header = struct.pack('>2I5B', width, height, 8, 2, 0, 0, 0)  # 8 bits each of red, green, blue.
  parts = ((b'IHDR', header), (b'IDAT', zlib.compress(rows.tobytes())), (b'IEND', b''))
  chunks = (
    struct.pack('>I', len(content)) + kind + content + struct.pack('>I', zlib.crc32(kind + content))
    for kind, content in parts
  )
  return b'\x89PNG\r\n\x1a\n' + b''.join(chunks)
