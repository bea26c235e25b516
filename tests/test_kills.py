"""A few of the kills that tests/kills.py makes by the fifty."""

import kills
import pytest

slow, cluster = pytest.mark.slow, pytest.mark.cluster


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
  ('kind', 'times'),
  [
    pytest.param('convert', 2, marks=slow),
    pytest.param('train', 3, marks=slow),
    pytest.param('evaluate', 1, marks=slow),
    pytest.param('export', 1, marks=slow),
    pytest.param('async', 1, marks=cluster),
    pytest.param('sync', 1, marks=cluster),
  ],
)
def test_a_rerun_after_a_kill_keeps_all_promises(tmp_path, kind, times):
  """They are the script's: it succeeds, loses no saved step, leaves nothing half written, ..."""
  found = kills.kill(kind, times, seed=7, folder=str(tmp_path))
  assert found['failures'] == []
  assert found['kills'] == times
  assert found['temporary_files_left'] == 0
