"""What is drawn, and what may come of it: it works, or is refused in one line."""

import contextlib
import json

from hypothesis import strategies as st

from cifar10.core.errors import InputError

# Numbers at and beyond the ends of their types, and words that are nearly right.
_ODD = [0, -1, 1, 2**31 - 1, 2**31, 2**63, 10**30, -(10**30), 1e308, float('nan'), float('inf')]
_WORDS = ['', ' ', 'None', 'nan', '-', '--', '../..', '\n', '\x00', 'é', '\ud800', 'a' * 5000]

scalars = st.one_of(
  st.none(),
  st.booleans(),
  st.sampled_from(_ODD),
  st.integers(),
  st.floats(),
  st.sampled_from(_WORDS),
  st.text(max_size=20),
)
values = st.recursive(
  scalars,
  lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
  ),
  max_leaves=8,
)


@contextlib.contextmanager
def refusals():
  """Lets an InputError pass whose message is one line; anything else fails the test."""
  try:
    yield
  except InputError as error:
    assert str(error)
    assert len(str(error).splitlines()) == 1


@st.composite
def changed(draw, content):
  """A JSON object in which some value, at any depth, is missing or another: its text."""
  content = json.loads(json.dumps(content))
  for _ in range(draw(st.integers(1, 3))):
    inside = content
    while isinstance(inside, (dict, list)) and inside:
      keys = sorted(inside) if isinstance(inside, dict) else range(len(inside))
      key = draw(st.sampled_from(keys))
      if not isinstance(inside[key], (dict, list)) or not inside[key] or draw(st.booleans()):
        if draw(st.integers(0, 4)):
          inside[key] = draw(values)
        else:
          del inside[key]
        break
      inside = inside[key]
  return json.dumps(content).encode()


@st.composite
def damaged(draw, content):
  """Bytes of which some are changed, gone, doubled or new."""
  content = bytearray(content)
  for _ in range(draw(st.integers(1, 3))):
    place = draw(st.integers(0, max(len(content) - 1, 0)))
    kind = draw(st.sampled_from(['bit', 'cut', 'remove', 'insert', 'zeros']))
    if kind == 'bit' and content:
      content[place] ^= 1 << draw(st.integers(0, 7))
    elif kind == 'cut':
      content = content[:place]
    elif kind == 'remove':
      del content[place : place + draw(st.integers(1, 4000))]
    elif kind == 'insert':
      content[place:place] = draw(st.binary(min_size=1, max_size=40))
    else:
      content[place : place + 16] = bytes(16)
  return bytes(content)


def files(content):
  """A JSON file as it might be: with other values, damaged, or nothing of the kind."""
  whole = json.dumps(content).encode()
  return st.one_of(
    changed(content), damaged(whole), st.binary(max_size=60), values.map(_as_json), st.just(whole)
  )


def _as_json(value):
  return json.dumps(value).encode()
