"""Tracers of tests, in place of another tracer such as that of coverage, which goes on after them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Tracer = Callable[[FrameType, str, Any], Any]


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    """Trace the block. An exception of the tracer leaves it as any other exception does."""
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(before)
