"""The results, one JSON file each, and what a record says."""

import glob
import json
import os
import statistics
from collections.abc import Mapping

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, 'benchmarks', 'results')

Records = Mapping[str, dict]  # By their files' names.
_MACHINES = {
  'AMD EPYC, family 26 model 2 (with AVX-512 BF16)': 'Zen 5',
  'AMD EPYC, family 25 model 17 (with AVX-512 BF16)': 'Zen 4',
  'AMD EPYC, family 25 model 17': 'Zen 4, AVX2 alone',
  'AMD EPYC, family 25 model 1': 'Zen 3',
  'AMD EPYC (with AVX-512 BF16)': 'EPYC',
  'Intel(R) Xeon(R) Processor (with AVX-512 BF16)': 'Xeon',
  'Intel(R) Xeon(R) Processor, family 6 model 167 (with AVX-512 BF16 and AMX)': 'Xeon with AMX',
  'Intel(R) Xeon(R) Processor, family 6 model 207 (with AVX-512 BF16 and AMX)': 'Emerald Rapids',
}


def read() -> dict[str, dict]:
  """All results, in the order of their files' names; each knows its `file`."""
  records = {}
  for path in sorted(glob.glob(os.path.join(RESULTS, '*.json'))):
    name = os.path.basename(path)
    with open(path, encoding='utf-8') as file:
      records[name.removesuffix('.json')] = {**json.load(file), 'file': name}
  return records


def trainings(records: Records) -> dict[str, dict]:
  """Those that end with an accuracy."""
  return {name: r for name, r in records.items() if 'twins' in r or 'result' in r}


def foremost(records: Records) -> dict[str, dict]:
  """Trainings, the most accurate first; of several of one recipe the one with the most runs.

  Its accuracies are pooled with those of the records that it names: the same recipe in the same
  form, on other machines.
  """
  trained = trainings(records)
  most: dict[str, str] = {}
  for name, record in trained.items():
    known = most.get(title(record))
    if known is None or number_of_runs(record) > number_of_runs(trained[known]):
      most[title(record)] = name
  pooled = {
    name: trained[name] | {'others': [trained[other] for other in trained[name].get('pools', ())]}
    for name in most.values()
  }
  return dict(sorted(pooled.items(), key=lambda item: -accuracy(item[1])))


def accuracy(record: dict) -> float:
  """Of a training on the test set, 0 to 1: its runs' mean."""
  return statistics.mean(accuracies(record))


def minutes(record: dict) -> float:
  """Of a training, from command to exit: its runs' median."""
  return record['minutes'] if 'result' in record else record['seconds_median'] / 60


def accuracies(record: dict) -> list[float]:
  """Of each run of a training, 0 to 1."""
  runs = record.get('runs') or [record['result']]
  others = [value for other in record.get('others', ()) for value in accuracies(other)]
  return [run['accuracy'] for run in runs] + others


def are_computed(record: dict) -> bool:
  """Whether a training's minutes were computed from its images/s, and not timed."""
  return record.get('minutes_are_computed', False)


def title(record: dict) -> str:
  """What was trained."""
  return record['title'] if 'result' in record else f'`--recipe {record["recipe"]}`'


def hardware(record: dict) -> str:
  """'2 cores of AMD EPYC (with AVX-512 BF16)'; with a GPU its name comes first."""
  known = record['hardware']
  gpu = f'{known["gpu"]} and ' if 'gpu' in known else ''
  return f'{gpu}{known["cores"]} cores of {known["processor"]}'


def machine(record: dict) -> str:
  """Its short name, as `machines` explains it."""
  known = record['hardware']
  return known.get('gpu') or _MACHINES.get(known['processor'], hardware(record))


def machines(records: Records) -> dict[str, str]:
  """What the short names mean that these records use."""
  found = [record for record in records.values() if 'hardware' in record]
  return {machine(record): hardware(record) for record in found}


def number_of_runs(record: dict) -> int:
  """How many trainings a record is of."""
  return len(accuracies(record))
