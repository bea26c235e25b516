"""A few of the kills that tests/kills.py makes by the fifty."""

import kills
import pytest

slow, long = pytest.mark.slow, pytest.mark.long


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
  ('kind', 'times'),
  [
    pytest.param('convert', 2, marks=long),
    pytest.param('train', 1, marks=slow),
    pytest.param('evaluate', 1, marks=long),
    pytest.param('export', 1, marks=long),
    pytest.param('async', 1, marks=[pytest.mark.cluster, long]),
    pytest.param('sync', 1, marks=[pytest.mark.cluster, long]),
  ],
)
def test_a_rerun_after_a_kill_keeps_all_promises(tmp_path, kind, times):
  """They are the script's: it succeeds, loses no saved step, leaves nothing half written, ..."""
  found = kills.kill(kind, times, seed=7, folder=str(tmp_path))
  assert found['failures'] == []
  assert found['kills'] == times
  assert found['temporary_files_left'] == 0
