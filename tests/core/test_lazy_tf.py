"""The import of TensorFlow: what it leaves behind in the process."""

import gc


def test_what_the_import_made_is_not_searched_again():
  """conftest.py has imported TensorFlow so. Objects made later are looked through as ever."""
  assert gc.isenabled()
  assert gc.get_freeze_count() > 100_000
