"""The page, in a real browser."""

import os

import pytest

from cifar10.reporting import job_report, page

pytestmark = pytest.mark.slow

HOSTILE_JOB = '<script>alert(1)<'  # A folder's name has no slash.
LONG_JOB = '"><img src=x>' + 'a_long_name_without_any_place_to_break_it_' * 5
CLASSES = ('<script>alert(1)</script>', '"quoted" & \'so\'', '<b>bold</b>', '{{ 7 * 7 }}', '$x$')
WIDE, NARROW = {'width': 1280, 'height': 900}, {'width': 390, 'height': 844}


def write(folder, *jobs):
  """Writes the page of these reports -> its address."""
  file = folder / 'report.html'
  file.write_text(page.render(jobs, 'made by a test'), encoding='utf-8')
  return f'file://{file}'


@pytest.fixture(scope='module')
def one_job(make_job, tmp_path_factory):
  """The page of a job with a history."""
  return write(tmp_path_factory.mktemp('page'), job_report.collect('A', make_job(), 'eval'))


@pytest.fixture(scope='module')
def hostile(make_job, data_dir, tmp_path_factory):
  """The page of three jobs; the names of two are not what names should be; one has no history."""
  named = job_report.collect('A', make_job(HOSTILE_JOB, classes=(*CLASSES, *'defgh')), 'eval')
  others = (
    job_report.collect('B', make_job(LONG_JOB, has_metrics=False), 'eval', data_dir=data_dir),
    job_report.collect('C', make_job('plain', learning_rate=0.3), 'eval'),
  )
  return write(tmp_path_factory.mktemp('page'), named, *others)


@pytest.fixture
def open_page(browser):
  """Opens an address that says nothing and asks for nothing but its pictures -> the page."""

  def show(address, viewport=WIDE, **context):
    opened = browser.new_page(viewport=viewport, **context)
    requests, said = [], []
    opened.on('request', lambda request: requests.append(request.url))
    opened.on('console', lambda message: said.append(message.text))
    opened.on('pageerror', lambda error: said.append(str(error)))
    opened.on('dialog', lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    opened.goto(address)
    assert said == []
    assert [url for url in requests if not url.startswith('data:image/png;')] == [address]
    return opened

  return show


# The length of the longest path of every line, or of the mark of its only point.
DRAWN = """() => [...document.querySelectorAll('figure.chart [role=img] > svg')].map(svg =>
  [...svg.querySelectorAll('[id*="-line-"]')].map(line =>
    Math.max(...[...line.querySelectorAll('path')].map(path => path.getTotalLength()))))"""


def test_everything_is_drawn_and_has_a_text_alternative(one_job, open_page):
  opened = open_page(one_job)
  charts = opened.evaluate(DRAWN)
  assert [len(lines) for lines in charts] == [2, 2, 1, 1]
  assert all(length > 10 for lines in charts for length in lines)
  pictures = opened.eval_on_selector_all(
    '.mistakes img', 'all => all.map(one => [one.complete, one.naturalWidth, one.naturalHeight])'
  )
  assert pictures == [[True, 32, 32]] * 40
  assert opened.locator('.matrix tbody td').count() == 100
  assert os.path.getsize(one_job.removeprefix('file://')) < 1 << 20
  without = """() => [...document.querySelectorAll('img, svg')].filter(one => !one.alt &&
    !one.closest('[role=img][aria-label]:not([aria-label=""])')).length"""
  assert opened.evaluate(without) == 0
  said = opened.locator('figure.chart [role=img]').first.get_attribute('aria-label')
  assert 'validation: 25.00 % at step 4, 50.00 % at step 8' in said
  ids = opened.eval_on_selector_all('[id]', 'all => all.map(one => one.id)')
  assert len(ids) == len(set(ids))


def test_names_are_shown_as_text(hostile, open_page):
  """Of a job dir, a data set, classes: none is markup, a template's or matplotlib's mathematics."""
  opened = open_page(hostile)
  assert opened.evaluate('document.scripts.length') == 0
  assert opened.locator('img[src=x], article b b').count() == 0
  assert opened.locator('.jobs a').all_inner_texts() == [HOSTILE_JOB, LONG_JOB, 'plain']
  assert opened.locator('#job-0 .matrix tbody th').all_inner_texts() == [*CLASSES, *'defgh']
  assert 'There is no metrics.jsonl' in opened.locator('#job-1 .note').first.inner_text()
  # Side by side: two lines in each of the first four charts, and what differs.
  assert [len(lines) for lines in opened.evaluate(DRAWN)[:4]] == [2, 2, 2, 2]
  assert 'learning_rate' in opened.locator('[aria-label="What differs"] tbody').inner_text()


@pytest.mark.parametrize('viewport', [WIDE, NARROW], ids=['wide', 'narrow'])
def test_nothing_sticks_out(viewport, hostile, open_page):
  opened = open_page(hostile, viewport)
  assert opened.evaluate('document.documentElement.scrollWidth') <= viewport['width']
  sizes = opened.eval_on_selector_all(
    'figure.chart text',
    'all => all.map(one => one.getBoundingClientRect().height).filter(height => height > 0)',
  )
  assert min(sizes) > 8  # pixels: small, and readable


# Of the paper, the text, a chart's text and a chart's line: how bright they are.
COLOURS = """() => {
  const shown = one => getComputedStyle(one);
  return [shown(document.body).backgroundColor, shown(document.body).color,
    shown(document.querySelector('[id*="-line-"] path')).stroke,
    shown(document.querySelector('figure.chart text')).fill].map(colour => {
      const [red, green, blue] = colour.match(/\\d+/g).map(Number);
      return (0.299 * red + 0.587 * green + 0.114 * blue) / 255;
    });
}"""


def test_dark_mode_and_paper(one_job, open_page):
  dark = open_page(one_job, color_scheme='dark')
  on_paper = open_page(one_job, color_scheme='light').evaluate(COLOURS)
  assert [each > 0.5 for each in on_paper] == [True, False, False, False]
  assert [each > 0.5 for each in dark.evaluate(COLOURS)] == [False, True, True, True]
  dark.emulate_media(media='print', color_scheme='dark')
  assert dark.evaluate(COLOURS) == on_paper
