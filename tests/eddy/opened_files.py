"""Files of `eddy.storage.file_kind` taken apart, so that tests can alter them, and put together with the right digest.

values     the JSON values; an array or a batch stands there as "@" and its name, such as "@joins 0 class 0 keys"
contents   the bytes of each of them, by that name
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from eddy.storage.codec import Blocks
from eddy.storage.file_kind import BEGIN, SNAPSHOT, FileKind
from eddy.storage.seal import DIGEST_BYTES, digest

Values = dict[str, Any]
Contents = dict[str, Any]


def opened(data: bytes, kind: FileKind = SNAPSHOT) -> tuple[Values, Contents]:
    """Return the values and the contents of a whole file."""
    parts, contents = kind.unpack(data), Contents()
    memory = parts._memory
    assert isinstance(memory, Blocks)

    def taken(value: Any, name: str) -> Any:
        if isinstance(value, list) and len(value) == 3 and all(type(number) is int for number in value):
            contents[name] = bytes(memory._range(value))
            return f"@{name}"
        if isinstance(value, dict):
            return {key: taken(part, f"{name} {key}".lstrip()) for key, part in value.items()}
        if isinstance(value, list):
            return [taken(part, f"{name} {k}") for k, part in enumerate(value)]
        return value

    values = {key: part if key == "header" else taken(part, key) for key, part in parts._values.items()}
    return values, contents


def closed(values: Any, contents: Mapping[str, Any], kind: FileKind = SNAPSHOT) -> bytes:
    """Return the bytes of a file. A name that is in one of the two only is removed, or added beside the other parts."""
    used = set()

    def absent(value: Any) -> bool:
        return isinstance(value, str) and value[:1] == "@" and value[1:] not in contents

    def put(value: Any) -> Any:
        if isinstance(value, str) and value[:1] == "@":
            used.add(value[1:])
            return memoryview(contents[value[1:]])
        if isinstance(value, dict):
            return {key: put(part) for key, part in value.items() if not absent(part)}
        if isinstance(value, list):
            return [put(part) for part in value if not absent(part)]
        return value

    whole = put(values)
    return kind.pack({**whole, **{name: memoryview(contents[name]) for name in contents if name not in used}})


def sealed(data: bytes) -> bytes:
    """Return bytes with the right length in their header and the right digest."""
    body = data[:16] + struct.pack("<Q", len(data)) + data[24:-DIGEST_BYTES]
    return body + digest(body)


def with_values(text: bytes, kind: FileKind = SNAPSHOT) -> bytes:
    """Return a file without blocks and with this text for its values."""
    start = kind.magic + struct.pack("<QQQQ", kind.version, 0, len(text), 0)
    return sealed(start.ljust(BEGIN, b"\0") + text + bytes(DIGEST_BYTES))
