"""State as bytes, and back. The only place where arrays become bytes, and bytes arrays that have been validated.

    codec         plain parts (`stairs.storage.parts`) as blocks and an index     snapshot, manifest, live engine
    arrow_bytes   record batches as bytes, every array validated                 snapshot, live engine, log
    file_kind     a file that is written as a whole: header, blocks, index       snapshot, manifest, groups, lists
    seal          digests of files, and seals under a secret key                 all of them
    random_state  the state of a random number generator as parts

Each place has its own header and decides where the blocks lie. A snapshot or manifest is written once, as a whole.
A live engine is rewritten in place after each push, so its blocks do not move (`eddy.live.file`). The files of the log
have no index: the manifest names each segment, with its place and digest, so that a file is written without seeking
back. Values are validated by one reader (`Parts`), whose forms are those of `stairs.storage.json_form`.
"""
