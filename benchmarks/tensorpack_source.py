"""Images/s of tensorpack's DataFlow from a Python source to shuffled batches; python_source.py's.

Runs in the environment of `make bench-install`. It prints one JSON object.

  python benchmarks/tensorpack_source.py --source source_examples:noisy --processes 2

Each process runs the whole source, shuffles and batches it, and sends whole batches: the fastest
order that tensorpack's tutorial knows. The source's shards are not used: tensorpack has none.
"""

import argparse
import importlib
import itertools
import json
import time
from importlib import metadata

from tensorpack import dataflow

_BUFFER = 10_000  # Examples to draw from, as many as the program has.


def main() -> None:
  """Measures it after a warm-up of as many batches."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--source', required=True, help='module:function')
  parser.add_argument('--processes', type=int, default=0, help='beside its own')
  parser.add_argument('--batch-size', type=int, default=128)
  parser.add_argument('--batches', type=int, default=200, help='in the measurement')
  flags = parser.parse_args()
  module, _, name = flags.source.partition(':')
  flow = dataflow.DataFromGenerator(getattr(importlib.import_module(module), name))
  flow = dataflow.LocallyShuffleData(dataflow.RepeatedData(flow, -1), _BUFFER)
  flow = dataflow.BatchData(flow, flags.batch_size)
  if flags.processes:
    flow = dataflow.MultiProcessRunnerZMQ(flow, flags.processes)
  flow.reset_state()
  batches = iter(flow)
  for _ in itertools.islice(batches, flags.batches):
    pass
  since = time.perf_counter()
  count = sum(len(labels) for _, labels in itertools.islice(batches, flags.batches))
  rate = count / (time.perf_counter() - since)
  del batches, flow  # Ends tensorpack's processes, which print a line about it.
  print(
    json.dumps(
      {'images_per_second': rate, 'versions': {'tensorpack': metadata.version('tensorpack')}}
    )
  )


if __name__ == '__main__':
  main()
