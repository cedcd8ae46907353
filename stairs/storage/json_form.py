"""Validation of JSON that may be damaged or forged: the expected form is declared, and checked before a value is used.

A form is a function of a value and its place that raises FormError unless the value fits:

    form = fields({"rows": integer(0), "plan": optional(text), "late": list_of(integer(0))})
    form({"rows": -1, "plan": None, "late": []}, "header")

raises "header.rows is -1, not a whole number of 0 or more". A mapping must have exactly the declared fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

Form = Callable[[object, str], None]
SHOWN = 60
"""Characters of a value that an error message shows."""


class FormError(ValueError):
    """Error of a value without its declared form, or of a text that is not JSON."""


def shown(value: object) -> str:
    """Return a value as error messages show it: in ASCII, and shortened."""
    # O(1): a forged value may be long or deeply nested.
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    if isinstance(value, str):
        return ascii(value if len(value) <= SHOWN else f"{value[:SHOWN]}…")
    written = f"about 2^{value.bit_length()}" if isinstance(value, int) and value.bit_length() > 64 else repr(value)
    return written


def parse(text: bytes | memoryview, infinite: bool = False) -> Any:
    """Return the value of a JSON text. Raises FormError for any other text, however deeply nested.

    infinite   whether numbers may be Infinity or NaN, which are no JSON
    """
    try:
        return json.loads(bytes(text), parse_constant=None if infinite else _no_number)
    except RecursionError:
        raise FormError("it is nested too deeply") from None
    except ValueError as problem:
        raise FormError(f"it is not JSON ({problem})") from problem


def _no_number(name: str) -> None:
    raise FormError(f"{name} is not a number")


def anything(value: object, place: str) -> None:
    """Accept any value."""


def _require(holds: bool, value: object, place: str, wanted: str) -> None:
    if not holds:
        raise FormError(f"{place} is {shown(value)}, not {wanted}")


def integer(least: int, most: int | None = None) -> Form:
    """Return the form of a whole number from `least` to `most`."""
    wanted = f"a whole number of {least} or more" if most is None else f"a whole number from {least} to {most}"

    def check(value: object, place: str) -> None:
        fits = isinstance(value, int) and not isinstance(value, bool)
        _require(fits and least <= value and (most is None or value <= most), value, place, wanted)  # type: ignore[operator]

    return check


def finite(least: float = -math.inf, most: float = 1e300) -> Form:
    """Return the form of a finite number of `least` or more, with an absolute value of at most `most`."""

    def check(value: object, place: str) -> None:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        # An int may be too large for a float.
        _require(fits and least <= value and abs(value) <= most, value, place, "a finite number in its range")  # type: ignore[operator, arg-type]

    return check


def floating(value: object, place: str) -> None:
    """Check for a float, which may be infinite or NaN."""
    _require(type(value) is float, value, place, "a float")


def boolean(value: object, place: str) -> None:
    """Check for true or false."""
    _require(isinstance(value, bool), value, place, "true or false")


def text(value: object, place: str) -> None:
    """Check for a string that can be encoded as UTF-8."""
    _require(isinstance(value, str), value, place, "a string")
    assert isinstance(value, str)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise FormError(f"{place} is {shown(value)}, which UTF-8 cannot encode") from None


def file_name(value: object, place: str) -> None:
    """Check for a relative path, with /, that stays below its directory."""
    text(value, place)
    parts = str(value).split("/")
    _require(not {"", ".", ".."} & set(parts) and "\0" not in str(value), value, place, "a path below its directory")


def one_of(choices: Collection[str]) -> Form:
    """Return the form of a string that is one of `choices`."""

    def check(value: object, place: str) -> None:
        _require(isinstance(value, str) and value in choices, value, place, f"one of {', '.join(sorted(choices))}")

    return check


def optional(form: Form) -> Form:
    """Return the form of null or a value of `form`."""

    def check(value: object, place: str) -> None:
        if value is not None:
            form(value, place)

    return check


def either(lists: Form, others: Form) -> Form:
    """Return the form of a value that has the form `lists` if it is a list, and the form `others` if not."""

    def check(value: object, place: str) -> None:
        (lists if isinstance(value, list) else others)(value, place)

    return check


def list_of(form: Form, length: int | None = None) -> Form:
    """Return the form of a list whose values all have one form, with `length` values if that is given."""

    def check(value: object, place: str) -> None:
        _require(isinstance(value, list), value, place, "a list")
        assert isinstance(value, list)
        _require(length is None or len(value) == length, value, place, f"a list of {length}")
        for k, entry in enumerate(value):
            form(entry, f"{place}[{k}]")

    return check


def row_of(*forms: Form, rest: Form | None = None) -> Form:
    """Return the form of a list with one form for each place, and with `rest` for any further place."""

    def check(value: object, place: str) -> None:
        fits = isinstance(value, list) and (len(value) == len(forms) or (rest is not None and len(value) > len(forms)))
        _require(fits, value, place, f"a list of {len(forms)}{'' if rest is None else ' or more'}")
        assert isinstance(value, list)
        for k, entry in enumerate(value):
            form = forms[k] if k < len(forms) else rest
            assert form is not None
            form(entry, f"{place}[{k}]")

    return check


def fields(forms: Mapping[str, Form], others: Collection[str] = (), ignored: bool = False) -> Form:
    """Return the form of a mapping with exactly these fields, and possibly some of `others`, which are strings.

    ignored   True: any other field is allowed, and not checked
    """

    def check(value: object, place: str) -> None:
        _require(isinstance(value, dict), value, place, "a mapping")
        assert isinstance(value, dict)
        for name in forms:
            if name not in value:
                raise FormError(f"{place} has no {name!r}")
        for name, entry in value.items():
            if name in forms or name in others:
                forms.get(name, text)(entry, f"{place}.{name}")
            elif not ignored:
                raise FormError(f"{place} has {shown(name)}, which is unknown")

    return check


def mapping_of(form: Form) -> Form:
    """Return the form of a mapping with any names, whose values have a form."""

    def check(value: object, place: str) -> None:
        mapping(value, place)
        assert isinstance(value, dict)
        for name, entry in value.items():
            form(entry, f"{place}.{shown(name)}")

    return check


def mapping(value: object, place: str) -> None:
    """Check for a mapping, with any contents."""
    _require(isinstance(value, dict), value, place, "a mapping")
