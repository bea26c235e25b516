"""What TF_CONFIG can say that is no cluster."""

import json

from harness import Case, cases

TITLE = 'TF_CONFIG'
BEFORE = '5 of 22'
WAS = (
  'tracebacks, aborts and waits for ever for addresses that are URLs or halves of IPv6, and for '
  'two names of one address; errors that repeated all of their input'
)
NOW = 'one check of addresses, the same as of the flags; errors shorten what they repeat'

CHIEF, WORKER, SERVER = '127.0.0.1:23451', '127.0.0.1:23452', '127.0.0.1:23453'
LONG = 'x' * 40_000


def config(chief=CHIEF, worker=WORKER, server=SERVER, **task):
  cluster = {'chief': [chief], 'worker': [worker], 'ps': [server]}
  return json.dumps({'cluster': cluster, 'task': {'type': 'worker', 'index': 0, **task}})


ADDRESSES = {
  'a URL': 'http://127.0.0.1:23452',
  'a grpc URL': 'grpc://127.0.0.1:23452',
  'a URL with a path': 'http://host:23452/path:80',
  'a bare IPv6 address': '::1:23452',
  'a long bare IPv6 address': 'fe80::1ff:fe23:4567:890a:23452',
  'an open IPv6 address': '[::1:23452',
  'an IPv6 address opened at its end': '::1]:23452',
  'an IPv6 address in nonsense': '[::1::2]:23452',
  'empty brackets': '[]:23452',
  'nonsense in brackets': '[host]:23452',
  'two ports': '127.0.0.1:80:23452',
  'a user': 'me@host:23452',
  'a comma': '127.0.0.1:23452,127.0.0.1:23454',
  'a space': '127.0.0.1 :23452',
  'a line break': '127.0.0.1\n:23452',
  'a NUL': 'a\0b:23452',
  'a control character': 'a\x1b[31m:23452',
  'a question mark': 'host?x:23452',
  'letters of another script': 'höst:23452',
  'digits of another script': '127.0.0.1:٢٣٤٥٢',
  'a lone surrogate': '\ud800:23452',
  'a percent sign': 'a%20b:23452',
  'no host': ':23452',
  'no port': '127.0.0.1',
  'port 0': '127.0.0.1:0',
  'port 65536': '127.0.0.1:65536',
  'a port of 40,000 digits': '127.0.0.1:' + '1' * 40_000,
  'a host of 40,000 letters': LONG + ':23452',
  'a number': 23452,
  'a list': [WORKER],
  'the same address': CHIEF,
  'another name of the same address': 'localhost:23451',
  'another spelling of the same address': '127.1:23451',
  'the same address in hex': '0x7f.0.0.1:23451',
  'the same name in capitals': 'LOCALHOST:23451',
  'the same port with a nought': '127.0.0.1:023451',
  'the IPv6 name of the same address': '[::1]:23451',
}
TEXTS = {
  'no JSON': LONG,
  'no JSON with line breaks': '{\n\n\n"cluster\x1b[31m',
  'an open list of a megabyte': '[' * 100_000,
  'a long job': json.dumps({'cluster': {LONG: []}, 'task': {'type': 'chief', 'index': 0}}),
  'a long type': config(type=LONG),
  'a long index': config(index=LONG),
  'an index of 4,000 digits': config().replace('"index": 0', '"index": ' + '9' * 4_000),
  'an index of 40,000 digits': config().replace('"index": 0', '"index": ' + '9' * 40_000),
  'a long key of the task': config(**{LONG: 1}),
  'a long model_dir': json.dumps({'model_dir': LONG}),
  'a long list': json.dumps(['a'] * 10_000),
  'a task of text': json.dumps({'cluster': {'chief': [CHIEF]}, 'task': LONG}),
  'many chiefs': json.dumps(
    {'cluster': {'chief': [f'h{i}:1' for i in range(3000)]}, 'task': {'type': 'chief', 'index': 0}}
  ),
  'chiefs of surrogates': '{"cluster": {"chief": ["\\ud800:1", 3]}, "task": 3}',
}


def case(name, text):
  return Case(name, 'train', (2,), environment={'TF_CONFIG': text}, says='TF_CONFIG', seconds=20)


CASES = [
  *(case(f'worker at {name}', config(worker=value)) for name, value in ADDRESSES.items()),
  *(
    case(f'server at {name}', config(server=ADDRESSES[name]))
    for name in ('a URL', 'a bare IPv6 address', 'an open IPv6 address', 'a comma')
  ),
  *(
    case(f'chief at {name}', config(chief=ADDRESSES[name], type='chief'))
    for name in ('a URL', 'a bare IPv6 address', 'an open IPv6 address', 'a line break')
  ),
  *(case(name, text) for name, text in TEXTS.items()),
]  # fmt: skip


@cases(CASES)
def test_hostile_cluster(run_case, case):
  run_case(case)
