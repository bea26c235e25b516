"""Help on all flags: --help, --list-recipes, and docs/flags.md."""

import argparse
from collections.abc import Mapping
from typing import Any, NoReturn

from cifar10.core.cli import OneLineParser
from cifar10.core.errors import print_result
from cifar10.core.option import Declaration, declarations
from cifar10.networks import registry
from cifar10.options.flags import COMMON, add_flags, add_own_flags


def full_parser(
  description: str | None = None, own: Mapping[str, type] | None = None
) -> argparse.ArgumentParser:
  """Returns a parser of all flags with --help; imports all families of networks.

  Args:
    description: the command's.
    own: the user's own family by its title, if one is chosen; then without the other families,
      whose options may have the names of its own.
  """
  parser = OneLineParser(description=description)
  group = parser.add_argument_group('what it does')
  add_own_flags(group)
  group.add_argument(
    '--list-recipes',
    action=_ListRecipes,
    nargs=0,
    default=argparse.SUPPRESS,
    help='list all recipes with their accuracy',
  )
  add_flags(parser, {**COMMON, **own} if own else groups(), _help)
  return parser


class _ListRecipes(argparse.Action):
  """Prints each recipe with accuracy, cost and flags, and ends the process, like --help."""

  def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> NoReturn:
    for name in registry.RECIPES:
      accuracy, cost, defaults = registry.recipe(name)
      flags = ' '.join(as_flag(*default) for default in defaults.items()) or 'the defaults'
      print_result(f'{name}\n  accuracy: {accuracy}\n  cost: {cost}\n  is: {flags}')
    parser.exit()


def groups() -> dict[str, type]:
  """Returns the groups of --help and docs/flags.md: title -> the class that declares them."""
  families = {f'--network {name}: {each.TITLE}': each for name, each in registry.FAMILIES.items()}
  return {**COMMON, **families}


def as_flag(name: str, value: Any) -> str:
  """Returns an option as it is given on the command line: '--lr-values 1,0.1'."""
  flag = '--' + name.replace('_', '-')
  return flag if value is True else f'{flag} {_as_text(value)}'


def table() -> str:
  """Returns the text of docs/flags.md: all options with default and help, by group."""
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
`--images`, `--out`, `--dry-run`, `--verbose`, `--version`, `--list-recipes`, `--print-completion`
and `--help`, which explains them. A flag that is True or False can be given alone (`--nesterov`),
with a value (`--nesterov False`) and negated (`--no-nesterov`)."""


def _row(declared: Declaration) -> str:
  choices = ', '.join(f'`{choice}`' for choice in declared.option.choices)
  help_text = declared.option.help + (f'. One of {choices}' if choices else '')
  help_text = help_text.replace('|', '\\|')
  return f'| `{declared.flag}` | {_described_default(declared)} | {help_text} |'


def _described_default(declared: Declaration) -> str:
  return '' if declared.default is None else _as_text(declared.default) or 'none'


def _help(declared: Declaration) -> str:
  default = _described_default(declared)
  return declared.option.help.replace('%', '%%') + (f' (default: {default})' if default else '')


def _as_text(value: Any) -> str:
  if isinstance(value, tuple):
    return ','.join(map(_as_text, value))
  return f'{value:g}' if isinstance(value, float) and value == float(f'{value:g}') else str(value)


if __name__ == '__main__':
  print(table(), end='')
