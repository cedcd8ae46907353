"""The figures of a sheet in the text format of Prometheus.

Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/, "Text-based format".
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite

from eddy.show.sheet import Metric, Sheet

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(sheet: Sheet) -> str:
    """Return the figures; those without a value are left out. Figures of one name are one family."""
    families: dict[str, list[Metric]] = {}
    for figure in sheet.figures:
        if figure.value is not None and isfinite(figure.value):
            families.setdefault(f"eddy_{figure.name}{'_total' if figure.counter else ''}", []).append(figure)
    lines = list[str]()
    for name, family in families.items():
        lines.append(f"# HELP {name} {_escaped(family[0].text)}")
        kind = "histogram" if family[0].buckets else "counter" if family[0].counter else "gauge"
        lines.append(f"# TYPE {name} {kind}")
        for figure in family:
            lines += _samples(name, figure, [(sheet.label, sheet.name), *figure.labels])
    return "\n".join([*lines, ""])


def _samples(name: str, figure: Metric, labels: list[tuple[str, str]]) -> list[str]:
    if not figure.buckets:
        return [f"{name}{_labels(labels)} {figure.value!r}"]
    bounds = [("+Inf" if bound == inf else repr(bound), count) for bound, count in figure.buckets]
    return [
        *(f"{name}_bucket{_labels([*labels, ('le', bound)])} {count}" for bound, count in bounds),
        f"{name}_sum{_labels(labels)} {figure.value!r}",
        f"{name}_count{_labels(labels)} {figure.buckets[-1][1]}",
    ]


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    texts = [f'{name}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"' for name, value in labels]
    return f"{{{','.join(texts)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
