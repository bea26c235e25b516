"""docs/first_steps.ipynb runs in a real kernel, and shows the notebook's own bars there."""

import os
import re

import nbclient
import nbformat
import pytest
from checkout import ROOT


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
  monkeypatch.setenv('PYTHONPATH', ROOT)
  monkeypatch.delenv('MPLBACKEND', raising=False)  # Else the kernel has no pictures of its own.
  notebook = nbformat.read(os.path.join(ROOT, 'docs', 'first_steps.ipynb'), as_version=4)
  nbformat.validate(notebook)
  cells = [cell for cell in notebook.cells if cell.cell_type == 'code']
  assert not any(cell.outputs or cell.execution_count for cell in cells)
  resources = {'metadata': {'path': str(tmp_path)}}
  nbclient.NotebookClient(notebook, timeout=200, resources=resources).execute()
  data, trained = (outputs(cells[number]) for number in (1, 2))
  assert "'eval': 500" in data['text/plain']
  assert 0 < float(trained['text/plain']) <= 1
  assert 'evaluated at step 120' in trained['stderr']
  [widgets] = notebook.metadata.widgets.values()
  states = [each['state'] for each in widgets['state'].values()]
  shown = ' '.join(str(state.get('value')) for state in states).replace('\u2007', ' ')
  assert re.search(r'step \d+ of 120  epoch', shown)
  # A bar that closes leaves what it last drew, which on a fast machine is not its end.
  assert re.search(r'evaluating eval \d+ of 500 images', shown)
  assert 'image/png' in outputs(cells[3])
  assert outputs(cells[-1])['text/plain'].startswith("'job/export/")


def outputs(cell):
  """What a cell shows, by its kind."""
  found = {}
  for output in cell.outputs:
    found.update(output.get('data', {}))
    if output.output_type == 'stream':
      found[output.name] = found.get(output.name, '') + output.text
  return found
