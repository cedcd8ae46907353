"""The figures of a sheet in the text format of Prometheus.

Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/, "Text-based format".
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from eddy.show.sheet import Figure, Sheet

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(sheet: Sheet) -> str:
    """Return the figures; those without a value are left out. Figures of one name are one family."""
    families: dict[str, list[Figure]] = {}
    for one in sheet.figures:
        if one.value is not None and isfinite(one.value):
            families.setdefault(f"eddy_{one.name}{'_total' if one.counter else ''}", []).append(one)
    lines = list[str]()
    for name, own in families.items():
        lines.append(f"# HELP {name} {_escaped(own[0].text)}")
        lines.append(f"# TYPE {name} {'counter' if own[0].counter else 'gauge'}")
        lines += [f"{name}{_labels([(sheet.label, sheet.name), *one.labels])} {one.value!r}" for one in own]
    return "\n".join([*lines, ""])


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    texts = [f'{name}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"' for name, value in labels]
    return f"{{{','.join(texts)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
