"""docs/migration.md: what it says of the program is so."""

import importlib
import re

import checkout
import pytest

from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions
from cifar10.training import schedules


def rows(title):
  """The cells of a section's first table."""
  page = checkout.read('docs/migration.md')
  section = page.partition(f'## {title}\n')[2].partition('\n## ')[0]
  lines = [line for line in section.splitlines() if line.startswith('|')][2:]
  return [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]


def number(cell):
  found = re.match(r'[0-9][0-9,.]*(e-?\d+)?', cell)
  return float(found[0].rstrip(',.').replace(',', '')) if found else None


@pytest.mark.parametrize('row', rows('The flags'), ids=lambda row: row[0])
def test_flags_are_there_with_these_defaults(row):
  table = checkout.read('docs/flags.md')
  for flag in re.findall(r'`(--[a-z-]+)`', row[0]):
    assert f'| `{flag}` |' in table
    name = flag[2:].replace('-', '_')
    if number(row[2]) is not None:
      given = (from_values({}), from_values({}).family, RunOptions(job_dir='job'))
      [value] = [getattr(options, name) for options in given if hasattr(options, name)]
      assert value == number(row[2])


PLACES = sorted(
  set(re.findall(r'`(cifar10(?:\.\w+)+|model_base\.\w+)', checkout.read('docs/migration.md')))
  - {'cifar10.json', 'cifar10.Cifar10DataSet.num_examples_per_epoch'}
)


@pytest.mark.parametrize('place', [each for each in PLACES if 'cifar10_' not in each])
def test_what_the_page_names_is_there(place):
  module, *names = place.split('.')
  found = importlib.import_module(module)
  for name in names:
    module = f'{module}.{name}'
    found = getattr(found, name) if hasattr(found, name) else importlib.import_module(module)


def test_drops_are_at_these_steps():
  """82 x 40,000 / 128 = 25,625; 123 x 40,000 / 128 = 38,437.5; 300 x 40,000 / 128 = 93,750.

  Then: 45,000 // 128 = 351 batches an epoch; 82 x 351 = 28,782 and so on.
  """
  classic = from_values({})
  now = [schedules.steps_of(each, 40_000, 128) for each in classic.lr_boundaries_epochs]
  then = [45_000 // 128 * epoch for epoch in classic.lr_boundaries_epochs]
  said = {
    row[0]: [re.search(r'step (\d[\d,]*\d)', cell)[1] for cell in row[1:]]
    for row in rows('What `--recipe classic` changes')
    if re.match(r'step [\d,]+', row[1]) and 'drop' in row[0]
  }
  assert list(said.values()) == [
    [f'{before:,}', f'{after:,}'] for before, after in zip(then, now, strict=True)
  ]
