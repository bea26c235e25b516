"""The page, in a real browser."""

import dataclasses
import os
import re

import numpy as np
import pytest

from cifar10.data import info
from cifar10.reporting import job_report, page
from cifar10.reporting.history import History
from cifar10.reporting.job_report import JobReport, Predictions

pytestmark = pytest.mark.slow

HOSTILE_JOB = '<script>alert(1)<'  # A folder's name has no slash.
CLASSES = (
  '<script>alert(1)</script>',
  '"quoted" & \'so\'',
  '<b>bold</b>',
  '{{ 7 * 7 }}',
  '$x$',
  *'defgh',
)
WIDE, NARROW = {'width': 1280, 'height': 900}, {'width': 390, 'height': 844}


@pytest.fixture(scope='module')
def make_page(tmp_path_factory):
  """Writes the page of these jobs -> its address."""

  def make(*paths):
    wanted = job_report.Wanted()
    jobs = [job_report.collect(letter, path, wanted) for letter, path in zip('ABC', paths)]
    file = tmp_path_factory.mktemp('page') / 'report.html'
    file.write_text(page.render(jobs, 'made by a test'), encoding='utf-8')
    return f'file://{file}'

  return make


@pytest.fixture(scope='module')
def one_job(make_page, make_job):
  """The page of a job with a history."""
  return make_page(make_job('the one'))


@pytest.fixture(scope='module')
def hostile(make_page, make_job):
  """The page of jobs whose names are not what names should be."""
  names = (HOSTILE_JOB, '"><img src=x>' + 'a_long_name_without_any_place_to_break_it_' * 5)
  return make_page(make_job(names[0], classes=CLASSES), make_job(names[1], has_metrics=False))


@pytest.fixture
def open_page(browser):
  """Opens an address -> the page, and what it asked for, said and showed without being asked."""

  def show(address, viewport=WIDE, **context):
    opened = browser.new_page(viewport=viewport, **context)
    seen = {'requests': [], 'said': []}
    opened.on('request', lambda request: seen['requests'].append(request.url))
    opened.on('console', lambda message: seen['said'].append(message.text))
    opened.on('pageerror', lambda error: seen['said'].append(str(error)))
    opened.on('dialog', lambda dialog: (seen['said'].append(dialog.message), dialog.dismiss()))
    opened.goto(address)
    return opened, seen

  return show


# The length of the longest path of every line, or of the mark of its only point.
DRAWN = """() => [...document.querySelectorAll('figure.chart [role=img] > svg')].map(svg => ({
  lines: [...svg.querySelectorAll('[id*="-line-"]')].map(line =>
    Math.max(...[...line.querySelectorAll('path')].map(path => path.getTotalLength()))),
  bars: svg.querySelectorAll('[id*="-bin-"]').length,
  width: svg.getBoundingClientRect().width,
  height: svg.getBoundingClientRect().height,
}))"""


def test_everything_is_drawn_and_nothing_is_asked_for(one_job, open_page):
  opened, seen = open_page(one_job)
  assert seen['said'] == []
  assert [url for url in seen['requests'] if not url.startswith('data:image/png;')] == [one_job]
  accuracy, loss, rate, speed, reliability = opened.evaluate(DRAWN)
  assert [len(chart['lines']) for chart in (accuracy, loss, rate, speed)] == [2, 2, 1, 1]
  assert reliability['bars'] > 0
  for chart in (accuracy, loss, rate, speed, reliability):
    assert chart['width'] > 300
    assert chart['height'] > 150
    assert all(length > 10 for length in chart['lines'])
  pictures = opened.eval_on_selector_all(
    '.mistakes img', 'all => all.map(one => [one.complete, one.naturalWidth, one.naturalHeight])'
  )
  assert pictures == [[True, 32, 32]] * 40
  assert opened.locator('.matrix tbody td').count() == 100


def test_every_picture_has_a_text_alternative(one_job, open_page):
  opened, _ = open_page(one_job)
  without = """() => [...document.querySelectorAll('img, svg')].filter(one => !one.alt &&
    !one.closest('[role=img][aria-label]:not([aria-label=""]), [aria-hidden=true]')).length"""
  assert opened.evaluate(without) == 0
  said = opened.locator('figure.chart [role=img]').first.get_attribute('aria-label')
  assert 'validation: 25.00 % at step 4, 50.00 % at step 8' in said
  assert '1 restart(s)' in said
  ids = opened.eval_on_selector_all('[id]', 'all => all.map(one => one.id)')
  assert len(ids) == len(set(ids))


def test_names_are_shown_as_text(hostile, open_page):
  """Of a job dir, a data set, classes: none is markup, a template's or matplotlib's mathematics."""
  opened, seen = open_page(hostile)
  assert seen['said'] == []
  assert opened.evaluate('document.scripts.length') == 0
  assert opened.locator('img[src=x], article b b').count() == 0
  first, second = opened.locator('.jobs a').all_inner_texts()
  assert first == HOSTILE_JOB
  assert second.startswith('"><img src=x>a_long')
  rows = opened.locator('#job-0 .matrix tbody th').all_inner_texts()
  assert rows == list(CLASSES)
  with open(hostile.removeprefix('file://'), encoding='utf-8') as file:
    assert '<script' not in file.read().lower()


@pytest.mark.parametrize('viewport', [WIDE, NARROW], ids=['wide', 'narrow'])
def test_nothing_sticks_out(viewport, hostile, open_page):
  opened, _ = open_page(hostile, viewport)
  assert opened.evaluate('document.documentElement.scrollWidth') <= viewport['width']
  sizes = opened.eval_on_selector_all(
    'figure.chart text',
    'all => all.map(one => one.getBoundingClientRect().height).filter(height => height > 0)',
  )
  assert min(sizes) > 8  # pixels: small, and readable


COLOURS = """() => {
  const shown = one => getComputedStyle(one);
  return [shown(document.body).backgroundColor, shown(document.body).color,
    shown(document.querySelector('[id*="-line-"] path')).stroke,
    shown(document.querySelector('figure.chart text')).fill];
}"""


def brightness(colour):
  red, green, blue = map(int, re.findall(r'\d+', colour)[:3])
  return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def test_dark_mode_and_paper(one_job, open_page):
  light, _ = open_page(one_job, color_scheme='light')
  dark, _ = open_page(one_job, color_scheme='dark')
  assert [brightness(colour) > 0.5 for colour in light.evaluate(COLOURS)] == [True, *[False] * 3]
  assert [brightness(colour) > 0.5 for colour in dark.evaluate(COLOURS)] == [False, *[True] * 3]
  on_paper = light.evaluate(COLOURS)
  dark.emulate_media(media='print', color_scheme='dark')
  assert dark.evaluate(COLOURS) == on_paper
  pdf = dark.pdf(format='A4')
  assert 3 <= len(re.findall(rb'/Type\s*/Page\b', pdf)) <= 12


def test_jobs_side_by_side(make_page, make_job, open_page):
  address = make_page(
    make_job('one', has_data=False),
    make_job('two', has_data=False),
    make_job('old', has_metrics=False),
  )
  opened, seen = open_page(address)
  assert seen['said'] == []
  compared = opened.evaluate(DRAWN)[:4]
  assert [len(chart['lines']) for chart in compared] == [2, 2, 2, 2]
  assert 'A, validation' in opened.locator('body').inner_text()
  headings = opened.locator('article > h2').all_inner_texts()
  assert [heading.split() for heading in headings] == [['A', 'one'], ['B', 'two'], ['C', 'old']]
  assert 'give --data-dir DIR' in opened.locator('#job-2 .note').first.inner_text()


@pytest.fixture(scope='module')
def many_classes(tmp_path_factory):
  """The page of a job of 100 classes, of which nothing is known but one evaluation."""
  rng = np.random.default_rng(0)
  classes = tuple(f'class {label}' for label in range(100))
  labels = np.arange(1000) % 100
  probabilities = rng.dirichlet(np.full(100, 0.1), 1000).astype(np.float32)
  predictions = Predictions('model.ckpt-5', 5, probabilities.argmax(1), probabilities)
  images = rng.integers(0, 256, [1000, 32, 32, 3], np.uint8)
  found = job_report.from_predictions(
    'eval', predictions, images=images, labels=labels, classes=classes
  )
  data = dataclasses.replace(info.CIFAR10, name='many', classes=classes)
  job = JobReport('A', '/job', History([]), data, {}, found, None, [])
  file = tmp_path_factory.mktemp('page') / 'report.html'
  file.write_text(page.render([job], 'made by a test'), encoding='utf-8')
  return f'file://{file}'


def test_many_classes_have_a_map_and_the_largest_mistakes(many_classes, open_page):
  opened, seen = open_page(many_classes)
  assert seen['said'] == []
  assert all(url == many_classes or url.startswith('data:image/png;') for url in seen['requests'])
  width = opened.eval_on_selector(
    '[id*="heat"] image, image[id*="heat"]', 'one => one.getBBox().width'
  )
  assert width > 100
  assert opened.locator('.matrix').count() == 0
  confusions = opened.locator('table:has(caption) tbody tr')
  assert confusions.count() == 20
  times = [int(text) for text in confusions.locator('td.n').all_inner_texts()]
  assert times == sorted(times, reverse=True)


def test_a_page_is_small(one_job, many_classes):
  """Five MB are allowed, of any job; both have their 40 mistakes."""
  assert os.path.getsize(one_job.removeprefix('file://')) < 1 << 20
  assert os.path.getsize(many_classes.removeprefix('file://')) < 2 << 20
