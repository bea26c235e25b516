"""Draws a confusion matrix as a picture: a row for each true class, a column for each predicted."""

import io
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

_FEW = 30  # Classes; with more of them, letters and cells are smaller.
_MOST = 200  # With more of them, a cell is a pixel: a picture with words would have gigabytes.
_MARGIN = 3  # Pixels around each text: TensorBoard shrinks wide pictures.
_DARKEST = (8, 48, 107)  # Blue, the colour of a cell that has all examples of its row.
_DARK = 144  # Of red: on darker cells digits are white, from 45 % of the row on.
_PALE = (170, 170, 170)  # The colour of the digit 0.


def draw(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> np.ndarray:
  """Draws the counts in cells; a cell is the darker the larger its count's share of its row.

  Args:
    matrix: [true class][predicted class], counts.
    classes: the names, by label: names and labels stand beside the rows, labels above the columns.

  Returns:
    uint8 [height, width, 3]; with more than 200 classes only shades, a pixel a cell.
  """
  counts = np.asarray(matrix).astype(int)
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  shades = np.round(255 + (np.array(_DARKEST) - 255) * shares[..., np.newaxis]).astype(np.uint8)
  if len(classes) > _MOST:
    return shades
  font = ImageFont.load_default(20 if len(classes) <= _FEW else 10)
  names = [f'{_plain(name):.20} {label}' for label, name in enumerate(classes)]
  longest = max(font.getlength(str(counts.max())), sum(font.getmetrics()))  # type: ignore
  cell = math.ceil(longest) + 2 * _MARGIN
  left = math.ceil(max(map(font.getlength, names))) + 2 * _MARGIN
  side = cell * len(names)
  picture = Image.new('RGB', (left + side + _MARGIN, cell + side + _MARGIN), 'white')
  pen = ImageDraw.Draw(picture)
  pen.fontmode = '1'  # Letters without grey: the file then has 15 KB, not 70.
  for label, name in enumerate(names):
    middle = cell * label + cell / 2
    pen.text((left - _MARGIN, cell + middle), name, 'black', font, 'rm')
    pen.text((left + middle, cell / 2), str(label), 'black', font, 'mm')
  for row, column in np.ndindex(*counts.shape):
    x, y, count = left + column * cell, cell + row * cell, counts[row, column]
    shade = tuple(shades[row, column].tolist())
    pen.rectangle((x + 1, y + 1, x + cell - 1, y + cell - 1), shade)
    ink = (255, 255, 255) if shade[0] <= _DARK else (0, 0, 0) if count else _PALE
    pen.text((x + cell / 2, y + cell / 2), str(count), ink, font, 'mm')
  return np.asarray(picture)


def _plain(name: str) -> str:
  """Returns a name in the letters that the font has."""
  return ''.join(each if each.isascii() and each.isprintable() else '?' for each in name)


def to_png(picture: np.ndarray) -> bytes:
  """Returns a picture, uint8 [height, width, 3], as a PNG file."""
  file = io.BytesIO()
  Image.fromarray(picture).save(file, 'PNG')
  return file.getvalue()
