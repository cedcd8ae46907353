"""Damage to the files of a stopped job, and the behaviour that must follow.

    primary, copy   one of the newest manifest's two copies, cut, overwritten or deleted: no effect
    both, gone      both copies. If Spark has marked the batch complete, the start is refused. Else Spark replays the
                    batch with the same rows; if its results were published, in whole or in part, that is refused
    segment         rows of the newest batch in the log: an error if they are read, else right results
    identity        one of two copies: no effect.  nameless: both copies: refused
    unmarked        the mark of the newest batch: published again, without effect. If the batch was joined again after
                    its results were published, because both manifests were lost: refused
    files           the newest list of files that Spark has taken: refused
    strays          files that crashes leave: no effect

After a refusal the files are restored from copies, as the error demands, and the job must then continue. The present
damage is recorded in a file, because the driver may be killed in the meantime.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.manifest import Manifest
from tests.spark.streaming.faults.workload import SCHEMA

CONTRADICTED = "Either the manifest of the published batch was lost"
IN_THE_WAY = "does not belong to batch"


@dataclass
class Damage:
    """Present damage.

    kind   the damage and its expected effect
    must   pattern of the error that must follow, None for none
    may    pattern of an error that may follow
    saved  files and the copies from which they can be restored
    none   files that did not exist: if they exist at the repair, they belong to another history of the job
    """

    kind: str
    must: str | None = None
    may: str | None = None
    saved: list[tuple[str, str]] = field(default_factory=list)
    none: list[str] = field(default_factory=list)


class Damager:
    """Damages the files of a job."""

    def __init__(self, root: Path, sink: str, chance: random.Random) -> None:
        self._root = root
        self._checkpoint = root / "checkpoint"
        self._sink = sink
        self._chance = chance
        self._note = root / "damage.json"

    @property
    def present(self) -> Damage | None:
        """The present damage."""
        return Damage(**json.loads(self._note.read_text())) if self._note.exists() else None

    def repair(self) -> None:
        """Restore the damaged files."""
        present = self.present
        if present is not None:
            for path, saved in present.saved:
                shutil.copyfile(saved, path)
            for stale in present.none:
                Path(stale).unlink(missing_ok=True)
            if present.must == IN_THE_WAY:
                self._clear_the_way()
            self._note.unlink()

    def inflict(self, name: str) -> Damage | None:
        """Inflict a kind of damage; return None if the job has no such files."""
        damage: Damage | None = getattr(self, f"_{name}")()
        if damage is not None and (damage.must or damage.may):
            unfinished = self._note.with_suffix(".tmp")
            unfinished.write_text(json.dumps(asdict(damage)))
            os.replace(unfinished, self._note)
        return damage

    # Manifests

    def _newest(self) -> tuple[Checkpoint, int, list[Path]]:
        checkpoint = Checkpoint(self._checkpoint)
        newest = checkpoint.newest_number()
        assert newest is not None
        name = f"{batch_name(newest)}.manifest"
        return checkpoint, newest, [checkpoint.manifests / name, checkpoint.copies / name]

    def _primary(self) -> Damage | None:
        _, _, (primary, copy) = self._newest()
        if not copy.exists():
            return None
        self._hurt(primary)
        return Damage("manifest, primary")

    def _copy(self) -> Damage | None:
        _, _, (primary, copy) = self._newest()
        if not primary.exists():
            return None
        self._hurt(copy)
        return Damage("manifest, copy")

    def _both(self, delete: bool = False) -> Damage | None:
        checkpoint, newest, files = self._newest()
        saved = [self._saved(path) for path in files if path.exists()]
        none = [str(path) for path in files if not path.exists()]
        for path in files:
            if delete:
                path.unlink(missing_ok=True)
            elif path.exists():
                self._hurt(path)
        committed = checkpoint.spark_committed()
        if self._sink == "hub" and (committed is None or committed < newest):
            if checkpoint.is_published(newest):
                return Damage("manifest, both, refused", must="versions of its queries", saved=saved, none=none)
            if self._is_out(newest) or any(self._on_the_way(newest)):
                for path, backup in saved:
                    shutil.copyfile(backup, path)
                return None
        if committed is not None and committed >= newest:
            lost = f"the state after batch {newest}, which .* is lost"
            return Damage("manifest, both, refused", must=lost, saved=saved, none=none)
        # The replayed batch has other result files than those that are published, or about to be.
        if self._sink != "callback" and self._is_out(newest) and not checkpoint.is_published(newest):
            return Damage("manifest, both, contradicted", must=CONTRADICTED, saved=saved, none=none)
        if any(self._on_the_way(newest)):
            return Damage("manifest, both, contradicted", must=IN_THE_WAY, saved=saved, none=none)
        return Damage("manifest, both, again")

    def _gone(self) -> Damage | None:
        return self._both(delete=True)

    def _outs(self) -> dict[str, Path]:
        """Return the directories of results by the prefix of their files in manifests."""
        out = self._root / "out"
        if self._sink != "hub":
            return {"": out}
        return {f"{path.name}/": path for path in sorted(out.glob("[a-z]*"))}

    def _is_out(self, batch: int) -> bool:
        return any(
            (out / f"batch={batch}").exists() or (out / "_log" / f"{batch_name(batch)}.json").exists()
            for out in self._outs().values()
        )

    def _given(self, manifest: Manifest) -> set[str]:
        """Return the names of the files that the sink of the user gets."""
        return {output.file for output in manifest.results}

    def _names_out(self, batch: int) -> set[str]:
        """Return the published files of a batch, by their names in the manifest."""
        entry = self._root / "out" / "_log" / f"{batch_name(batch)}.json"
        if entry.exists():
            return {
                file["name"].removeprefix(f"{batch_name(batch)}-") for file in json.loads(entry.read_text())["files"]
            }
        return {
            f"{prefix}{path.name}"
            for prefix, out in self._outs().items()
            for path in (out / f"batch={batch}").glob("part-*")
        }

    def _on_the_way(self, batch: int) -> list[Path]:
        """Return files of the Parquet sink that were collected for a rename that failed."""
        places = (out / "_staging" / f"publish-{batch_name(batch)}" for out in self._outs().values())
        return sorted(path for place in places for path in place.glob("*"))

    def _clear_the_way(self) -> None:
        manifest = Checkpoint(self._checkpoint).newest()
        assert manifest is not None
        named = {output.file.rpartition("/")[2] for output in manifest.results}
        for path in self._on_the_way(manifest.batch):
            if path.name not in named:
                path.unlink()

    # Other files

    def _segment(self) -> Damage | None:
        checkpoint, newest, _ = self._newest()
        manifest = checkpoint.newest()
        if manifest is None:
            return None
        chains = [state.chain for state in manifest.groups.values()]
        segments = [segment for chain in chains for link in chain if link.batch == newest for segment in link.segments]
        if not segments:
            return None
        path = checkpoint.log / self._chance.choice(segments).file
        saved = [self._saved(path)]
        self._hurt(path)
        return Damage("segment", may=path.name, saved=saved)

    def _identity(self) -> Damage | None:
        self._hurt(self._checkpoint / self._chance.choice(["identity.json", "identity-copy.json"]))
        return Damage("identity, one")

    def _nameless(self) -> Damage | None:
        files = [self._checkpoint / "identity.json", self._checkpoint / "identity-copy.json"]
        saved = [self._saved(path) for path in files]
        for path in files:
            self._hurt(path)
        return Damage("identity, both, refused", must="has no whole identity", saved=saved)

    def _unmarked(self) -> Damage | None:
        checkpoint, newest, _ = self._newest()
        mark = checkpoint.published / batch_name(newest)
        if not mark.exists():
            return None
        saved = [self._saved(mark)]
        mark.unlink()
        if checkpoint.spark_committed() == newest:
            return Damage("mark, not looked at")
        manifest = checkpoint.newest()
        out = self._names_out(newest)
        if manifest is not None and out and out != self._given(manifest):
            return Damage("mark, contradicted", must=CONTRADICTED, saved=saved)
        return Damage("mark, published again")

    def _files(self) -> Damage | None:
        lists = sorted((self._checkpoint / "files").glob("*.new"))
        if not lists:
            return None
        saved = [self._saved(lists[-1])]
        self._hurt(lists[-1])
        return Damage("files, refused", must="order in which files were taken is lost|lists are missing", saved=saved)

    def _strays(self) -> Damage | None:
        checkpoint, newest, _ = self._newest()
        other = uuid.uuid4().hex
        for directory in (checkpoint.manifests, checkpoint.copies):
            (directory / f"{batch_name(newest + 1)}.manifest.{other[:12]}.tmp").write_bytes(b"half")
        for batch in (newest, newest + 1):
            (checkpoint.log / f"{batch_name(batch)}-0-{other}").write_bytes(b"eddyslog of an attempt given up")
            (checkpoint.log / f"{batch_name(batch)}-1-{other}.{other[:12]}.tmp").write_bytes(b"")
            rows = pa.Table.from_pylist([{"k": -1, "t": -1, "v": -1}], schema=SCHEMA)
            pq.write_table(rows, checkpoint.late / f"{batch_name(batch)}-2-{other}.parquet")
            place = self._root / "out" / "_staging"
            place = place if self._sink != "callback" else self._checkpoint / "staging" / "staging"
            (place / batch_name(batch)).mkdir(parents=True, exist_ok=True)
            (place / batch_name(batch) / f"part-00000-{other}.parquet").write_bytes(b"PAR1")
        return Damage("strays")

    # Ways to damage a file

    def _hurt(self, path: Path) -> None:
        """Cut, overwrite, empty or delete a file."""
        how = self._chance.choice(["cut", "flip", "empty", "delete"])
        if how == "delete":
            path.unlink(missing_ok=True)
            return
        data = bytearray(path.read_bytes()) if path.exists() else bytearray(b"?")
        if how == "flip":
            for _ in range(3):
                data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        path.write_bytes(b"" if how == "empty" else data[: len(data) // 2] if how == "cut" else data)

    def _saved(self, path: Path) -> tuple[str, str]:
        saved = self._root / "saved" / uuid.uuid4().hex
        saved.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, saved)
        return str(path), str(saved)
