"""What all classes of hostile cases share."""

import harness
import pytest


@pytest.fixture(scope='session')
def launcher():
  """What starts the commands."""
  started = harness.Launcher()
  yield started
  started.end()


@pytest.fixture
def run_case(launcher, data_dir, tmp_path):
  """Runs a case in a place of its own."""

  def run(case):
    folder = tmp_path / 'place'
    folder.mkdir()
    return harness.run(case, harness.make_place(folder, data_dir), launcher)

  return run
