"""A confusion matrix as a picture: SVG, which needs no fonts and no library to draw with."""

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

_CELL = 44  # Pixels.
_TITLE = 36  # Beside the labels: what rows and columns are.
_LETTER = 7.5  # About a letter's width.
_LONGEST = 20  # Letters of a label; a longer one is cut.
_DARK = 0.5  # A cell of at least this share has white digits.


class Drawn(NamedTuple):
  """A picture, as wide as it is high."""

  svg: bytes
  size: int  # Pixels.


def draw(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> Drawn:
  """Counts in cells, which are the darker the larger a count's share of its row.

  Args:
    matrix: [true class][predicted class], counts.
    classes: the names, by label.
  """
  counts = np.asarray(matrix).astype(int)
  names = [name if len(name) <= _LONGEST else f'{name[: _LONGEST - 1]}…' for name in classes]
  edge = _TITLE + int(max(map(len, names)) * _LETTER) + 8
  size = edge + _CELL * len(names) + 8
  svg = ElementTree.Element('svg', xmlns='http://www.w3.org/2000/svg', viewBox=f'0 0 {size} {size}')
  svg.attrib.update({'width': str(size), 'height': str(size)})
  svg.attrib.update({'font-family': 'sans-serif', 'font-size': '13'})
  ElementTree.SubElement(svg, 'rect', width='100%', height='100%', fill='white')
  middle = edge + _CELL * len(names) / 2
  _write(svg, 'true class', 18, middle, anchor='middle', turned=True)
  _write(svg, 'predicted class', middle, 22, anchor='middle')
  for label, name in enumerate(names):
    centre = edge + _CELL * (label + 0.5)
    _write(svg, name, edge - 8, centre + 4, anchor='end')
    _write(svg, name, centre + 4, edge - 8, anchor='start', turned=True)
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  for row, column in np.ndindex(*counts.shape):
    left, top = edge + _CELL * column, edge + _CELL * row
    _draw_cell(svg, left, top, counts[row, column], shares[row, column])
  return Drawn(ElementTree.tostring(svg), size)


def _draw_cell(svg: ElementTree.Element, left: int, top: int, count: int, share: float) -> None:
  # From white to a dark blue.
  red, green, blue = (round(255 + (dark - 255) * share) for dark in (8, 48, 107))
  box = {'x': str(left), 'y': str(top), 'width': str(_CELL), 'height': str(_CELL)}
  box |= {'fill': f'rgb({red},{green},{blue})', 'stroke': '#ccc'}
  ElementTree.SubElement(svg, 'rect', box)
  colour = 'white' if share >= _DARK else 'black' if count else '#999'
  _write(svg, str(count), left + _CELL / 2, top + _CELL / 2 + 5, anchor='middle', fill=colour)


def _write(
  svg: ElementTree.Element,
  text: str,
  x: float,
  y: float,
  *,
  anchor: str,
  turned: bool = False,
  fill: str = 'black',
) -> None:
  """Text that starts, ends or has its middle at a point; `turned` it runs upwards."""
  where = {'x': f'{x:g}', 'y': f'{y:g}', 'text-anchor': anchor, 'fill': fill}
  if turned:
    where['transform'] = f'rotate(-90 {x:g} {y:g})'
  ElementTree.SubElement(svg, 'text', where).text = text
