"""Makes docs/flags.md: python -m cifar10.options.flag_help"""

from cifar10.core.option import Declaration, declarations
from cifar10.options.flags import COMMON, FAMILIES, described_default


def table() -> str:
  """Returns the text of docs/flags.md: all options with default and help, by group."""
  lines = [_TABLE_HEAD]
  for title, cls in {**COMMON, **FAMILIES}.items():
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
  return f'| `{declared.flag}` | {described_default(declared)} | {help_text} |'


if __name__ == '__main__':
  print(table(), end='')
