"""What a command that a test ran came to."""

import json


def succeeded(result):
  """The JSON of its last line; a failure shows what it said."""
  assert result.returncode == 0, result.stderr
  return json.loads(result.stdout.splitlines()[-1])
