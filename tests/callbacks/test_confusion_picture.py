"""The confusion matrix as a picture: where things are, and that the numbers can be read back."""

import numpy as np
import tensorflow as tf

from cifar10.callbacks import confusion_picture, small_font


def decoded(png):
  with tf.compat.v1.Session(graph=tf.Graph()) as session, session.graph.as_default():
    return session.run(tf.io.decode_png(png))


def places(picture, text, scale=2):
  """Where a text stands: the top left corners of all areas that have its ink and no other."""
  ink = small_font.draw(text, scale)
  dark = picture.sum(2) < 200
  windows = np.lib.stride_tricks.sliding_window_view(dark, ink.shape)
  return [tuple(map(int, corner)) for corner in np.argwhere((windows == ink).all((2, 3)))]


def test_letters_are_drawn_as_they_are_known():
  expected = [
    '.###..',
    '#...#.',
    '#..##.',
    '#.#.#.',
    '##..#.',
    '#...#.',
    '.###..',
  ]
  drawn = [''.join('.#'[dot] for dot in row) for row in small_font.draw('0', 1).astype(int)]
  assert drawn == expected
  assert small_font.draw('ab', 3).shape == (21, 36)  # 7 x 3 high, 2 x 6 x 3 wide.


def test_rows_are_true_classes_and_columns_predicted_ones():
  picture = confusion_picture.draw([[10, 2], [345, 678]], ['cat', 'dog'])
  # 'predicted class', 15 x 12 wide, stands above two cells of 90. The edge: a line of 20, a name of
  # 36 + 6.
  assert picture.shape == (62 + 180 + 3, 62 + 180 + 3, 3)
  [(two_top, two_left)] = places(picture, '2')
  [(below_top, below_left)] = places(picture[:, : 62 + 90], '345')
  assert 62 < two_top < 62 + 90 < two_left < 62 + 180
  assert 62 < below_left < 62 + 90 < below_top < 62 + 180
  assert len(places(picture, 'cat')) == 1  # Upright it stands once, beside its row.
  assert len(places(np.rot90(picture, -1), 'cat')) == 1


def test_a_cell_is_the_darker_the_larger_its_share():
  picture = confusion_picture.draw([[9, 1], [0, 0]], ['a', 'b'])
  # A margin's corner of each cell: 9 of 10, 1 of 10, and of no examples at all.
  edge, cell = 20 + 12 + 6, 90
  corners = [
    picture[edge + 2 + cell * row, edge + 2 + cell * column] for row, column in np.ndindex(2, 2)
  ]
  # From 255 to 8, 48, 107: 255 - 0.9 x 247 = 32.7.
  np.testing.assert_array_equal(corners[0], [33, 69, 122])
  np.testing.assert_array_equal(corners[1], [230, 234, 240])
  np.testing.assert_array_equal(corners[2:], [[255] * 3] * 2)


def test_names_that_cannot_be_written_are_numbered_or_cut():
  names = ['été', '猫', 'a' * 25]
  shown = [confusion_picture._label(name, label) for label, name in enumerate(names)]
  assert shown == ['ete', 'class 1', 'a' * 18 + '..']


def test_a_hundred_classes_fit():
  picture = confusion_picture.draw(np.eye(100) * 100, [f'class {n}' for n in range(100)])
  assert max(picture.shape) < 3000
  np.testing.assert_array_equal(decoded(confusion_picture.to_png(picture)), picture)
