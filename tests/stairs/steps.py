"""A way to call the steps of kernels, which are compiled only as parts of kernels (`stairs.kernels.accelerate`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def callable_step(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that does nothing but call a step."""

    @numba.njit(_nrt=False, error_model="numpy")  # type: ignore[untyped-decorator]
    def call(*args: Any) -> Any:
        return step(*args)

    return call  # type: ignore[no-any-return]
