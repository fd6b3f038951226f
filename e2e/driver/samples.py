"""What a program says on /metrics."""

import re

from .base import ClusterError
from .machine import http_get


def samples(url, name):
    """[(labels, value)] of one metric, now."""
    text, good = http_get(url, None)
    if not good:
        raise ClusterError(f"{url}: {text}")
    return samples_of(text, name)


def samples_of(text, name):
    """The same of what was said."""
    found = (re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line) for line in text.splitlines())
    return [(dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', one[1] or "")), float(one[2])) for one in found if one]


def total(measured, labels):
    """Over all other labels but these."""
    return sum(value for found, value in measured if all(found.get(key) == text for key, text in labels.items()))
