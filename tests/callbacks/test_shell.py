"""The shell of --debug-shell, typed into."""

import io
import sys
import types

import pytest
import tensorflow as tf

from cifar10.callbacks import shell
from cifar10.callbacks.base import TrainingGraph
from cifar10.options.run_options import RunOptions


@pytest.mark.parametrize('end', ['', 'exit()\n', 'quit()\n'])
def test_it_has_session_graph_batch_and_step(end, monkeypatch, capsys):
  """However it is closed, the training goes on, and can open it again."""
  with tf.Graph().as_default():
    images = tf.zeros([2, 32, 32, 3], tf.uint8)
    run = types.SimpleNamespace(is_chief=True, options=RunOptions(job_dir='job', debug_shell=True))
    callback = shell.make(run)
    callback.on_graph(TrainingGraph(images, tf.constant([3, 4]), {}, {}, []))
    with tf.compat.v1.Session() as session:
      typed = (
        "print(step + 1, batch['labels'], session.graph is graph, session.run(tf.constant(5)))"
      )
      monkeypatch.setattr(sys, 'stdin', io.StringIO(f'{typed}\n{end}'))
      monkeypatch.setattr(shell.importlib.util, 'find_spec', lambda name: None)  # No IPython.
      fetches = callback.before_run(None).fetches
      callback.after_run(None, types.SimpleNamespace(results=session.run(fetches)))
      run.open_shell(session, 7)
      assert not sys.stdin.closed
  said = capsys.readouterr()
  assert '8 [3 4] True 5\n' in said.out
  assert 'training is paused after step 7; here are session, graph, step' in said.err
