"""A source of images from two more processes, for those that take longer to make than a step:

--source parallel_source:images --examples-per-epoch 40000, with this folder in PYTHONPATH.
"""

import pickle
import signal
import subprocess
import sys

import numpy as np

COUNT, BATCH, PROCESSES = 40_000, 250, 2


def made(process):
  """The batches of one process; put your own work here."""
  rng = np.random.default_rng(process)
  for start in range(process * BATCH, COUNT, PROCESSES * BATCH):
    labels = np.arange(start, start + BATCH) % 10
    noisy = rng.normal(25 * labels[:, None, None, None], 5, [BATCH, 32, 32, 3])
    yield np.clip(noisy, 0, 255).astype(np.uint8), labels


def images():
  commands = [[sys.executable, __file__, str(process)] for process in range(PROCESSES)]
  processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands]
  try:
    for number in range(COUNT // BATCH):  # From each in turn: the order is the same each time.
      yield pickle.load(processes[number % PROCESSES].stdout)
  finally:
    for process in processes:
      process.terminate()


if __name__ == '__main__':
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training,
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whose end is this one's.
  for batch in made(int(sys.argv[1])):
    pickle.dump(batch, sys.stdout.buffer)
