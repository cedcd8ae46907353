"""Allocation of blocks in the file of a live engine."""

from __future__ import annotations

import os
import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from eddy import Runtime
from eddy.live import file as live_file
from eddy.live.file import HEADER_BYTES, LiveFile
from eddy.storage.codec import Block
from tests.eddy.live_engines import SavedRuntime, long_query, long_rows


@given(st.data())
def test_blocks_never_overlap_and_gaps_are_used_again(data: st.DataObject) -> None:
    with tempfile.TemporaryFile() as handle:
        file, contents = LiveFile(handle.fileno()), dict[int, bytes]()
        for step in range(data.draw(st.integers(1, 8))):
            kept = [k for k in range(len(file.blocks)) if data.draw(st.booleans())]
            sizes = data.draw(st.lists(st.sampled_from((1, 64, 100, 5000, 300_000)), max_size=6))
            texts = [bytes([65 + step]) * size for size in sizes]
            had = [contents[file.blocks[k].start] for k in kept]
            old, new, end = file.lay_out(kept, sizes)
            for text, at in zip(texts, new, strict=True):
                file.write(text, at)
            contents = {old[k]: text for k, text in zip(kept, had, strict=True)} | dict(zip(new, texts, strict=True))
            blocks = sorted(Block(at, len(text)) for at, text in contents.items())
            assert all(block.start % 64 == 0 for block in blocks)
            assert [HEADER_BYTES, *(block.start + block.size for block in blocks)] == sorted(
                [HEADER_BYTES, *(block.start + block.size for block in blocks)]
            )
            assert all(a.start + a.size <= b.start for a, b in pairwise(blocks))
            assert end <= 2 * sum(-(-block.size // 64) * 64 for block in blocks) + live_file.SPARE + HEADER_BYTES
            os.ftruncate(handle.fileno(), end)
            for block in blocks:
                assert os.pread(handle.fileno(), block.size, block.start) == contents[block.start]
            file.close()
            file.open(file.mapped(end), blocks)


def test_kernels_take_mapped_memory_as_they_take_any(path: Path) -> None:
    from tests.varied_use import compiled

    query = long_query()
    runtime = Runtime(query, strategy="jisc")
    runtime.push(long_rows(0), watermark=0)
    runtime.push(long_rows(40), watermark=40)
    before = compiled()
    saved = SavedRuntime(path, runtime)
    for step in range(2, 5):
        runtime = saved.again(query)
        runtime.push(long_rows(40 * step), watermark=40 * step)
        for array in runtime._pipeline.join.modules.arena:
            assert array.flags.writeable
            assert array.flags.c_contiguous
            assert array.flags.aligned
    assert {name: n for name, n in compiled().items() if n > max(before[name], 1)} == {}
    saved.leave()
