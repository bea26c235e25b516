"""The numbers of jobs as a table for a terminal."""

import unicodedata
from collections.abc import Sequence

from cifar10.reporting import formats, summary
from cifar10.reporting.job_report import JobReport


def table(jobs: Sequence[JobReport]) -> str:
  """Names of the jobs, their numbers, what differs, their classes, notes: lines of text."""
  parts = [
    _columns([[job.letter, job.name, formats.text(job.path)] for job in jobs], left=3),
    _columns(_numbers(jobs)),
    'Intervals: 95 %; of accuracies Wilson score intervals, of the cross-entropy the normal one.',
  ]
  if len(jobs) > 1:
    rows = [[each.name, *each.texts] for each in summary.differences(jobs)]
    parts.append(_columns([['What differs', *_letters(jobs)], *rows]))
  parts.append(_columns(_classes(jobs)))
  parts += [f'{job.letter}: {note}' for job in jobs for note in job.notes]
  return '\n\n'.join(part for part in parts if part)


def _numbers(jobs: Sequence[JobReport]) -> list[list[str]]:
  by_label = [{row.label: row for row in summary.rows(job)} for job in jobs]
  missing = summary.Row('', formats.NONE)
  lines = [['', *(part for letter in _letters(jobs) for part in (letter, '95 % interval'))]]
  for label in dict.fromkeys(label for rows in by_label for label in rows):
    found = [rows.get(label, missing) for rows in by_label]
    lines.append([label, *(part for row in found for part in (row.value, row.interval))])
  return lines


def _classes(jobs: Sequence[JobReport]) -> list[list[str]]:
  """Accuracies by class; nothing where no job knows them."""
  by_name = [
    {each.name: each for each in job.evaluated.classes} if job.evaluated else {} for job in jobs
  ]
  names = dict.fromkeys(name for classes in by_name for name in classes)
  if not names:
    return []
  lines = [
    ['Accuracy by class', *(part for each in _letters(jobs) for part in (each, '95 % interval'))]
  ]
  for name in names:
    line = [name]
    for classes in by_name:
      found = classes[name].accuracy if name in classes else None
      line += (
        [formats.percent(found.value), formats.percent_range(found)]
        if found
        else [formats.NONE, '']
      )
    lines.append(line)
  return lines


def _letters(jobs: Sequence[JobReport]) -> list[str]:
  return [job.letter for job in jobs]


def _columns(lines: Sequence[Sequence[str]], left: int = 1) -> str:
  """Cells below each other, the first `left` columns from the left, the others from the right."""
  if not lines:
    return ''
  shown = [[_printable(cell) for cell in line] for line in lines]
  widths = [max(map(len, column)) for column in zip(*shown)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) if place < left else cell.rjust(width)
      for place, (cell, width) in enumerate(zip(line, widths))
    ).rstrip()
    for line in shown
  )


def _printable(cell: str) -> str:
  """Without characters that would break the line, or be an order to the terminal."""
  return ''.join('?' if unicodedata.category(each)[0] == 'C' else each for each in cell)
