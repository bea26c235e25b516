"""The confusion matrix as a picture: which part of it tells what."""

import numpy as np
import tensorflow as tf

from cifar10.callbacks import confusion_picture

MATRIX, CLASSES = [[10, 2], [345, 678]], ['cat', 'dog']
MARGIN = 3


def decoded(png):
  with tf.compat.v1.Session(graph=tf.Graph()) as session, session.graph.as_default():
    return session.run(tf.io.decode_png(png))


def cells(picture, num_classes):
  """Where the cells of each class begin: beside and above them all is black or white."""
  coloured = (picture.max(2) != picture.min(2)).any(0)
  edge = int(np.flatnonzero(coloured)[0]) - 1  # A cell has a white line on its left.
  side, rest = divmod(len(picture) - MARGIN - edge, num_classes)
  assert rest == 0
  return [edge + side * label for label in range(num_classes)], side


def changed(before, after):
  """The first row, first column, last row and last column that differ in two pictures."""
  rows, columns = np.nonzero((before != after).any(2))
  return rows.min(), columns.min(), rows.max(), columns.max()


def test_rows_are_true_classes_and_columns_predicted_ones():
  """What changes when one more cat is taken for a dog: the first row, as its shares change."""
  picture = confusion_picture.draw(MATRIX, CLASSES)
  [first, second], side = cells(picture, 2)
  another = confusion_picture.draw([[10, 3], [345, 678]], CLASSES)
  assert changed(picture, another) == (first + 1, first + 1, second - 1, second + side - 1)
  empty_row = confusion_picture.draw([[0, 0], [345, 678]], CLASSES)
  moved = confusion_picture.draw([[0, 7], [345, 678]], CLASSES)
  top, left, bottom, right = changed(empty_row, moved)
  assert (top, left, bottom, right) == (first + 1, second + 1, second - 1, second + side - 1)


def test_a_name_stands_beside_its_row_and_above_its_column():
  before = confusion_picture.draw(MATRIX, CLASSES)
  after = confusion_picture.draw(MATRIX, ['cat', 'god'])  # The same letters: the same width.
  [first, second], side = cells(before, 2)
  beside = changed(before[first:], after[first:])  # Below the names of columns.
  assert first + beside[0] > second and first + beside[2] < second + side
  assert beside[3] < first
  above = changed(before[:first], after[:first])
  assert second < above[1] <= above[3] < second + side


def test_a_cell_is_the_darker_the_larger_its_share():
  picture = confusion_picture.draw([[9, 1], [0, 0]], ['a', 'b'])
  starts, _ = cells(picture, 2)
  # A margin's corner of each cell: 9 of 10, 1 of 10, and of no examples at all.
  corners = [picture[top + 2, left + 2] for top in starts for left in starts]
  # From 255 to 8, 48, 107: 255 - 0.9 x 247 = 32.7.
  np.testing.assert_array_equal(corners[0], [33, 69, 122])
  np.testing.assert_array_equal(corners[1], [230, 234, 240])
  np.testing.assert_array_equal(corners[2:], [[255] * 3] * 2)


def test_names_that_cannot_be_written_are_numbered_or_cut():
  names = ['été', '猫', 'a\nb', 'a' * 25]
  shown = [confusion_picture._label(name, label) for label, name in enumerate(names)]
  assert shown == ['ete', 'class 1', 'class 2', 'a' * 18 + '..']


def test_a_hundred_classes_fit():
  picture = confusion_picture.draw(np.eye(100) * 100, [f'class {n}' for n in range(100)])
  assert max(picture.shape) < 3000
  np.testing.assert_array_equal(decoded(confusion_picture.to_png(picture)), picture)
