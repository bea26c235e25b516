"""Makes docs/flags.md: python tests/options/flag_page.py > docs/flags.md"""

from cifar10.core.option import declarations, flag_of
from cifar10.options.flags import COMMON, FAMILIES, shown_default

HEAD = """# Flags

Made by `make docs`. A recipe sets other defaults, which `--list-recipes` prints. `--help` explains
these flags and `--mode`, `--recipe`, `--network`, `--images`, `--out`, `--dry-run`, `--verbose` and
`--version`. A flag that is True or False can be given alone (`--nesterov`), with a value
(`--nesterov False`) and negated (`--no-nesterov`)."""
TABLE = '| flag | default | what it is |\n|---|---|---|'


def rows(cls):
  for declared in filter(lambda each: each.help, declarations(cls)):
    choices = ', '.join(f'`{choice}`' for choice in declared.choices)
    text = declared.help + (f'. One of {choices}' if choices else '')
    text = text.replace('|', '\\|')
    yield f'| `{flag_of(declared.name)}` | {shown_default(declared)} | {text} |'


def page():
  """All options with default and help, by group."""
  lines = [HEAD]
  for title, cls in COMMON.items():
    lines += [f'\n## {title[0].upper()}{title[1:]}\n\n{TABLE}', *rows(cls)]
  lines.append(f'\n## Networks\n\n{TABLE}')
  for title, cls in FAMILIES.items():
    lines += [f'| **`{title.replace(": ", "`** | | ", 1)} |', *rows(cls)]
  return '\n'.join(lines)


if __name__ == '__main__':
  print(page())
