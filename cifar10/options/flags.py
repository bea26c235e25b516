"""The declared options as command-line flags, and as a table for the docs."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Callable
from typing import Any

from cifar10.core.option import Declaration, declarations
from cifar10.data.augmentation import Augmentation
from cifar10.networks import registry
from cifar10.options.hparams import RECIPES, HParams
from cifar10.options.run_options import RunOptions

# The groups of --help and of docs/flags.md: a title, and the class whose options it has.
GROUPS: dict[str, type] = {
  'where it runs and what it keeps': RunOptions,
  'training': HParams,
  'distortion of training images': Augmentation,
  **{f'--network {name}: {family.TITLE}': family for name, family in registry.FAMILIES.items()},
}


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds every option's flag. What is not given stays unset: recipe or job dir fill it in."""
  for title, cls in GROUPS.items():
    group = parser.add_argument_group(title)
    for declared in declarations(cls):
      _add_flag(group, declared)


def list_recipes() -> str:
  """Every recipe: what it leads to, what it costs, and the flags that it stands for."""
  lines = []
  for name, recipe in RECIPES.items():
    flags = ' '.join(as_flag(option, value) for option, value in recipe.defaults.items())
    lines += [name, f'  accuracy: {recipe.accuracy}', f'  cost: {recipe.cost}']
    lines.append(f'  is: {flags or "the defaults"}')
  return '\n'.join(lines)


def as_flag(name: str, value: Any) -> str:
  """A value as it is given: '--lr-values 1.0,0.1'."""
  flag = '--' + name.replace('_', '-')
  return flag if value is True else f'{flag} {_as_text(value)}'


def table() -> str:
  """docs/flags.md: every option with its default and help, by group."""
  parts = [_TABLE_HEAD]
  for title, cls in GROUPS.items():
    parts.append(
      f'\n## {title[0].upper()}{title[1:]}\n\n| flag | default | what it is |\n|---|---|---|'
    )
    parts += [_row(declared) for declared in declarations(cls)]
  return '\n'.join(parts) + '\n'


_TABLE_HEAD = """# Flags

Made by `make docs` from the declarations in `cifar10/`. A recipe sets other defaults, which
`--list-recipes` prints. Beside these flags the command has `--mode`, `--recipe`, `--network`,
`--images`, `--dry-run`, `--verbose`, `--version`, `--print-completion` and `--help`. A flag that is
True or False can be given alone (`--nesterov`), with a value (`--nesterov False`) and negated
(`--no-nesterov`)."""


def _row(declared: Declaration) -> str:
  choices = ', '.join(f'`{choice}`' for choice in declared.option.choices)
  said = declared.option.help + (f'. One of {choices}' if choices else '')
  said = said.replace('|', '\\|')
  return f'| `{declared.flag}` | {_described_default(declared)} | {said} |'


def _described_default(declared: Declaration) -> str:
  if declared.default is dataclasses.MISSING:
    return '(required)'
  return '' if declared.default is None else _as_text(declared.default) or 'none'


def _add_flag(group: Any, declared: Declaration) -> None:
  settings: dict[str, Any] = {
    'dest': declared.name,
    'default': argparse.SUPPRESS,
    'required': declared.default is dataclasses.MISSING,
    'help': _help(declared),
  }
  if declared.kind is bool:
    group.add_argument(declared.flag, nargs='?', const=True, type=_parse_bool, **settings)
    settings['help'] = argparse.SUPPRESS
    negated = declared.flag.replace('--', '--no-', 1)
    group.add_argument(negated, action='store_false', **settings)
    return
  if declared.kind == tuple[str, ...]:
    group.add_argument(declared.flag, action=_Append, metavar=declared.option.metavar, **settings)
    return
  if declared.option.choices:
    settings['choices'] = declared.option.choices
  group.add_argument(
    declared.flag, type=_parser_of(declared.kind), metavar=declared.option.metavar, **settings
  )


def _help(declared: Declaration) -> str:
  said = declared.option.help.replace('%', '%%')
  if declared.default in (None, dataclasses.MISSING):
    return said
  return f'{said} (default: {_as_text(declared.default) or "none"})'


def _as_text(value: Any) -> str:
  if isinstance(value, tuple):
    return ','.join(map(_as_text, value))
  return f'{value:g}' if isinstance(value, float) and value == float(f'{value:g}') else str(value)


def _parser_of(kind: Any) -> Callable[[str], Any]:
  if typing.get_origin(kind) is not tuple:
    return kind
  number = typing.get_args(kind)[0]

  def parse(text: str) -> tuple:
    try:
      return tuple(number(part) for part in text.split(',')) if text not in ('', 'none') else ()
    except ValueError:
      raise argparse.ArgumentTypeError(f'{text!r} is not numbers with commas between') from None

  return parse


class _Append(argparse.Action):
  """Adds a flag's value to those of before: the flag can be given several times; '' adds none."""

  def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
    added = (values,) if values else ()
    setattr(namespace, self.dest, (*getattr(namespace, self.dest, ()), *added))


def _parse_bool(text: str) -> bool:
  values = {'true': True, '1': True, 'yes': True, 'false': False, '0': False, 'no': False}
  if text.lower() not in values:
    raise argparse.ArgumentTypeError(f'{text!r} is not True or False')
  return values[text.lower()]


if __name__ == '__main__':
  print(table(), end='')
