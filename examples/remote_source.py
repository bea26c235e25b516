"""A source of images from another machine, where anybody can read them. Start there and here:

python examples/remote_source.py 5050
SERVER=HOST:5050 PYTHONPATH=examples python cifar10_main.py --source remote_source:images \
  --examples-per-epoch 40000 ...
"""

import os
import socket
import socketserver
import sys

import numpy as np

COUNT, ROW = 40_000, 1 + 32 * 32 * 3  # A row: the label's byte, then the image's.


class Server(socketserver.StreamRequestHandler):
  def handle(self):
    """Sends the rows of an epoch; put your own images here."""
    try:
      for number in range(COUNT):
        self.wfile.write(np.full(ROW, number % 10, np.uint8).tobytes())
    except ConnectionError:
      pass  # The training looks at the first one alone, and at all when it begins.


def images():
  with socket.create_connection(os.environ['SERVER'].rsplit(':', 1), timeout=60) as server:
    stream = server.makefile('rb')
    for _ in range(COUNT):
      row = np.frombuffer(stream.read(ROW), np.uint8)
      yield row[1:].reshape(32, 32, 3), row[0]


if __name__ == '__main__':
  with socketserver.ThreadingTCPServer(('', int(sys.argv[1])), Server) as listening:
    print('serves at port', listening.server_address[1], flush=True)
    listening.serve_forever()
