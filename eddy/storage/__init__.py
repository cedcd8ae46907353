"""Formats on disk: JSON and arrays, validated before they are used. The only place where arrays become bytes.

    arrays        arrays of numbers as ranges of bytes, alignment, digests     snapshot, manifest, live engine, log
    arrow_bytes   record batches as bytes, every array validated               snapshot, manifest, live engine, log
    sections      a file of a JSON header, named sections and a digest         snapshot, manifest
    parts_json    an object as JSON, its arrays in blocks of a mapped file     live engine
    json_form     declared forms of JSON values                                snapshot, manifest, other JSON of a job
    random_state  the state of a random number generator as parts

Two things stay apart on purpose. A snapshot or manifest is written once, as a whole, and read by anybody: it has named
sections and one digest, its reader trusts nothing and declares the form of the whole header (`json_form`). A live
engine is rewritten in place after each push and read by processes that share a secret key: its blocks have no names and
do not move, its seal covers a changing file, and each class reads its own parts as they were sealed
(`stairs.storage.parts`). The log has neither header nor index in its files: the manifest names each segment, with its
place and digest, so that a file is written without seeking back.
"""
