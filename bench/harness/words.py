"""Numbers and lists as they stand in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def plain(value: float) -> str:
    """Return a number with three digits, or all before the point.

    >>> plain(0.01234), plain(12345.6)
    ('0.0123', '12,346')
    """
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def listed(words: Sequence[str]) -> str:
    """Return words as an English list.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
