"""The confusion matrix as a picture: which part of it tells what."""

import numpy as np
import pytest

from cifar10.callbacks.summaries import confusion_picture

MARGIN = 3


def draw(matrix, classes=('cat', 'dog')):
  return np.asarray(confusion_picture(matrix, classes))


def cells(picture):
  """The rows and columns at which the cells of two classes begin."""
  coloured = picture.max(2) != picture.min(2)  # Beside and above them all is black or white.
  left, top = (int(np.flatnonzero(coloured.any(axis))[0]) - 1 for axis in (0, 1))
  side = (picture.shape[1] - MARGIN - left) // 2
  return (top, top + side), (left, left + side)


def test_rows_are_true_classes_and_columns_predicted_ones():
  """What changes when cats are taken for dogs is one cell."""
  (first, second), (_, right) = cells(draw([[10, 2], [345, 678]]))
  before, after = draw([[0, 0], [345, 678]]), draw([[0, 7], [345, 678]])
  rows, columns = np.nonzero((before != after).any(2))
  assert (rows.min(), columns.min(), rows.max()) == (first + 1, right + 1, second - 1)


def test_a_cell_is_the_darker_the_larger_its_share():
  """9 of 10, 1 of 10, and of no examples at all: from 255 to 8, 48, 107, 255 - 0.9 x 247 = 32.7."""
  picture = draw([[9, 1], [0, 0]])
  tops, lefts = cells(picture)
  corners = [picture[top + 2, left + 2].tolist() for top in tops for left in lefts]
  assert corners == [[33, 69, 122], [230, 234, 240], [255] * 3, [255] * 3]


@pytest.mark.parametrize(('num_classes', 'width'), [(100, 3300), (300, 301)])
def test_many_classes_fit_whatever_their_names(num_classes, width):
  names = [f'猫\n{n}' + 'a' * 50 for n in range(num_classes)]
  assert max(draw(np.eye(num_classes) * 100, names).shape) < width
