"""Draws a confusion matrix as a picture with labels and counts."""

import io
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

_ROWS, _COLUMNS = 'true class', 'predicted class'
_LONGEST = 20  # Letters of a label; longer labels are cut.
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
    classes: the names, by label.

  Returns:
    uint8 [height, width, 3]; a row for each true class, a column for each predicted one. With more
      than 200 classes only shades, a pixel a cell.
  """
  counts = np.asarray(matrix).astype(int)
  if len(classes) > _MOST:
    return _shades(counts)
  names = [_label(name, label) for label, name in enumerate(classes)]
  font: Any = ImageFont.load_default(20 if len(names) <= _FEW else 10)
  line = sum(font.getmetrics()) + 2 * _MARGIN
  for_titles = math.ceil(font.getlength(_COLUMNS) / len(names))
  cell = max(line, math.ceil(font.getlength(str(counts.max()))) + 2 * _MARGIN, for_titles)
  # Above and beside the cells: the titles of rows and columns, and the classes' names.
  edge = line + math.ceil(max(map(font.getlength, names))) + 2 * _MARGIN
  side = cell * len(names)
  size = edge + side + _MARGIN
  picture = Image.new('RGB', (size, size), 'white')
  pen = _pen(picture)
  _draw_cells(pen, counts, font, edge, cell)
  middles = [edge + cell * label + cell / 2 for label in range(len(names))]
  pen.text((edge + side / 2, line / 2), _COLUMNS, 'black', font, 'mm')
  for middle, name in zip(middles, names):
    pen.text((edge - _MARGIN, middle), name, 'black', font, 'rm')
  # The vertical texts are drawn while the picture is turned on its right side.
  picture = picture.transpose(Image.Transpose.ROTATE_270)
  pen = _pen(picture)
  pen.text((size - edge - side / 2, line / 2), _ROWS, 'black', font, 'mm')
  for middle, name in zip(middles, names):
    pen.text((size - edge + _MARGIN, middle), name, 'black', font, 'lm')
  return np.asarray(picture.transpose(Image.Transpose.ROTATE_90))


def _pen(picture: Image.Image) -> ImageDraw.ImageDraw:
  """Returns a pen that draws letters without grey: a picture then has 15 KB, not 70."""
  pen = ImageDraw.Draw(picture)
  pen.fontmode = '1'
  return pen


def _shades(counts: np.ndarray) -> np.ndarray:
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  shades = 255 + (np.array(_DARKEST) - 255) * shares[..., np.newaxis]
  return np.round(shades).astype(np.uint8)


def _draw_cells(
  pen: ImageDraw.ImageDraw, counts: np.ndarray, font: Any, edge: int, cell: int
) -> None:
  shades = _shades(counts)
  for row, column in np.ndindex(*counts.shape):
    left, top, count = edge + column * cell, edge + row * cell, counts[row, column]
    shade = tuple(shades[row, column].tolist())
    pen.rectangle((left + 1, top + 1, left + cell - 1, top + cell - 1), shade)
    ink = (255, 255, 255) if shade[0] <= _DARK else (0, 0, 0) if count else _PALE
    pen.text((left + cell / 2, top + cell / 2), str(count), ink, font, 'mm')


def _label(name: str, label: int) -> str:
  """Returns a class's name without accents, or its number if the font lacks its letters."""
  decomposed = unicodedata.normalize('NFKD', name)
  plain = ''.join(letter for letter in decomposed if not unicodedata.combining(letter))
  if not plain.isascii() or not plain.isprintable() or not plain:
    return f'class {label}'
  return plain if len(plain) <= _LONGEST else f'{plain[: _LONGEST - 2]}..'


def to_png(picture: np.ndarray) -> bytes:
  """Returns a picture, uint8 [height, width, 3], as a PNG file."""
  file = io.BytesIO()
  Image.fromarray(picture).save(file, 'PNG')
  return file.getvalue()
