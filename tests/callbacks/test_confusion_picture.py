"""The confusion matrix as a picture: which part of it tells what."""

import io

import numpy as np
import pytest
from PIL import Image

from cifar10.callbacks.summaries import confusion_picture, to_png


def draw(matrix, classes):
  return np.asarray(confusion_picture(matrix, classes))


MATRIX, CLASSES = [[10, 2], [345, 678]], ['cat', 'dog']
MARGIN = 3


def cells(picture, num_classes):
  """The rows and columns at which the cells of each class begin, and their side."""
  coloured = picture.max(2) != picture.min(2)  # Beside and above them all is black or white.
  left, top = (int(np.flatnonzero(coloured.any(axis))[0]) - 1 for axis in (0, 1))
  side, rest = divmod(picture.shape[1] - MARGIN - left, num_classes)
  assert rest == 0
  return [top + side * n for n in range(num_classes)], [left + side * n for n in range(num_classes)]


def changed(before, after):
  """The first row, first column, last row and last column that differ in two pictures."""
  rows, columns = np.nonzero((before != after).any(2))
  return rows.min(), columns.min(), rows.max(), columns.max()


def test_rows_are_true_classes_and_columns_predicted_ones():
  """What changes when cats are taken for dogs is one cell, and beside a row stands its name."""
  before = draw([[0, 0], [345, 678]], CLASSES)
  (first, second), (_, right) = cells(draw(MATRIX, CLASSES), 2)
  after = draw([[0, 7], [345, 678]], CLASSES)
  top, left, bottom, _ = changed(before, after)
  assert (top, left, bottom) == (first + 1, right + 1, second - 1)
  # The same letters: the same width.
  renamed = draw([[0, 0], [345, 678]], ['cat', 'god'])
  top, _, _, last = changed(before, renamed)
  assert top > second and last < right


def test_a_cell_is_the_darker_the_larger_its_share():
  """9 of 10, 1 of 10, and of no examples at all: from 255 to 8, 48, 107, 255 - 0.9 x 247 = 32.7."""
  picture = draw([[9, 1], [0, 0]], ['a', 'b'])
  tops, lefts = cells(picture, 2)
  corners = [picture[top + 2, left + 2].tolist() for top in tops for left in lefts]
  assert corners == [[33, 69, 122], [230, 234, 240], [255] * 3, [255] * 3]


@pytest.mark.parametrize(('num_classes', 'width'), [(100, 3000), (300, 301)])
def test_many_classes_fit_whatever_their_names(num_classes, width):
  names = [f'猫\n{n}' + 'a' * 50 for n in range(num_classes)]
  drawn = confusion_picture(np.eye(num_classes) * 100, names)
  picture = np.asarray(drawn)
  assert max(picture.shape) < width
  decoded = np.asarray(Image.open(io.BytesIO(to_png(drawn))))
  np.testing.assert_array_equal(decoded, picture)
