"""All flags in words: --help, --list-recipes, and docs/flags.md."""

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any, NoReturn

from cifar10.core.cli import OneLineParser
from cifar10.core.option import Declaration, declarations
from cifar10.networks import registry
from cifar10.options.flags import COMMON, add_flags, add_own_flags


def full_parser(
  description: str | None = None, own: Mapping[str, type] | None = None
) -> argparse.ArgumentParser:
  """The parser of every flag that there is, with --help; loads all families of networks.

  Args:
    description: of the command.
    own: the user's own family by its title.
  """
  parser = OneLineParser(
    description=description, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  group = parser.add_argument_group('what it does')
  add_own_flags(group)
  group.add_argument(
    '--list-recipes',
    action=_ListRecipes,
    nargs=0,
    default=argparse.SUPPRESS,
    help='list all recipes with their accuracy',
  )
  add_flags(parser, {**groups(), **(own or {})}, _help)
  return parser


class _ListRecipes(argparse.Action):
  """Prints each recipe, its accuracy, cost and flags, and ends, as --help does."""

  def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> NoReturn:
    for name in registry.RECIPES:
      accuracy, cost, defaults = registry.recipe(name)
      print(f'{name}\n  accuracy: {accuracy}\n  cost: {cost}')
      print('  is:', ' '.join(as_flag(*default) for default in defaults.items()) or 'the defaults')
    parser.exit()


def groups() -> dict[str, type]:
  """The groups of --help and of docs/flags.md: a title, and the class whose options it has."""
  families = {f'--network {name}: {each.TITLE}': each for name, each in registry.FAMILIES.items()}
  return {**COMMON, **families}


def as_flag(name: str, value: Any) -> str:
  """A value as it is given: '--lr-values 1.0,0.1'."""
  flag = '--' + name.replace('_', '-')
  return flag if value is True else f'{flag} {_as_text(value)}'


def table() -> str:
  """docs/flags.md: every option with its default and help, by group."""
  lines = [_TABLE_HEAD]
  for title, cls in groups().items():
    lines.append(
      f'\n## {title[0].upper()}{title[1:]}\n\n| flag | default | what it is |\n|---|---|---|'
    )
    lines += [_row(declared) for declared in declarations(cls)]
  return '\n'.join(lines) + '\n'


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


def _help(declared: Declaration) -> str:
  said = declared.option.help.replace('%', '%%')
  if declared.default in (None, dataclasses.MISSING):
    return said
  return f'{said} (default: {_as_text(declared.default) or "none"})'


def _as_text(value: Any) -> str:
  if isinstance(value, tuple):
    return ','.join(map(_as_text, value))
  return f'{value:g}' if isinstance(value, float) and value == float(f'{value:g}') else str(value)


if __name__ == '__main__':
  print(table(), end='')
