"""A few of the kills that tests/kills.py makes by the fifty."""

import kills
import pytest


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
  'kind',
  [
    pytest.param('convert', marks=pytest.mark.slow),
    pytest.param('train', marks=pytest.mark.slow),
    pytest.param('async', marks=[pytest.mark.cluster, pytest.mark.long]),
    pytest.param('sync', marks=[pytest.mark.cluster, pytest.mark.long]),
  ],
)
def test_a_rerun_after_a_kill_keeps_all_promises(tmp_path, kind):
  """They are the script's: it succeeds, loses no saved step, leaves nothing half written, ..."""
  found = kills.kill(kind, 1, seed=7, folder=str(tmp_path))
  assert found['failures'] == []
  assert (found['kills'], found['temporary_files_left']) == (1, 0)
