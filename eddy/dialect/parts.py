"""Parts: the relational form of a statement, a tree of inner joins in which parts hang on parts as branches of a query.

A part is an inner join of occurrences of tables. Outer, semi and anti joins hang on the part as further parts. Two
rules of relational algebra keep the form simple:

- an outer join whose missing rows a later condition rejects is an inner join;
- an outer join that reads a branch of the left side, and rejects its missing rows, hangs on that branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from eddy.dialect.as_of import AsOfPart
from eddy.expressions.source import StatementText
from eddy.expressions.trees import reads, rejects
from eddy.query.branch import How


@dataclass
class Hung:
    """A part that hangs on another one, as `Branch.how` says.

    over   of a full join, the occurrences of its left side: the part may have others by then
    """

    how: How
    part: JoinPart
    over: tuple[int, ...] = ()


@dataclass
class JoinPart:
    """An inner join.

    occurrences  those of tables in it
    conditions   its conjuncts; those of a part that hangs on others may read their occurrences
    branches     the parts that hang on it
    after        conditions on whole rows: they read columns that a branch may lack, or columns of versions
    as_of        the as-of joins that extend its rows
    """

    occurrences: list[int]
    conditions: list[exp.Expression] = field(default_factory=list)
    branches: list[Hung] = field(default_factory=list)
    after: list[exp.Expression] = field(default_factory=list)
    as_of: list[AsOfPart] = field(default_factory=list)

    def shown(self) -> set[int]:
        """Return the occurrences whose columns rows can have: those of semi and anti joins are hidden."""
        below = (branch.part.shown() for branch in self.branches if branch.how in ("left", "full"))
        return {*self.occurrences, *(lookup.number for lookup in self.as_of)}.union(*below)

    def all(self) -> Iterator[int]:
        """Yield all occurrences."""
        yield from self.occurrences
        for each in self.as_of:
            yield each.number
        for branch in self.branches:
            yield from branch.part.all()

    def everywhere(self) -> Iterator[JoinPart]:
        """Yield the part, and the parts that hang on it."""
        yield self
        for branch in self.branches:
            yield from branch.part.everywhere()

    def surely(self) -> set[int]:
        """Return the occurrences of which each row of the part has a row, semi and anti joins left out."""
        return (
            set()
            if self._full
            else {*self.occurrences, *(lookup.number for lookup in self.as_of if lookup.how == "inner")}
        )

    def absorb(self, other: JoinPart) -> None:
        """Take the occurrences, conditions and branches of another part into this inner join."""
        self.occurrences += other.occurrences
        self.conditions += other.conditions
        self.branches += other.branches
        self.after += other.after
        self.as_of += other.as_of

    def add(self, condition: exp.Expression) -> None:
        """Add a condition on the rows of the part; outer joins whose missing rows it rejects become inner ones."""
        read = reads(condition)
        while True:
            for k, branch in enumerate(self.branches):
                if branch.how == "full" and self._without_full(k, condition):
                    break
                if branch.how == "left" and read & branch.part.shown() and rejects(condition, branch.part.shown()):
                    del self.branches[k]
                    self.absorb(branch.part)
                    break
            else:
                break
        inside = read & self.shown()
        (self.conditions if inside <= set(self.occurrences) and not self._full else self.after).append(condition)

    def settle(self) -> None:
        """Add the conditions on whole rows once more, because outer joins may have become inner joins since."""
        again, self.after = self.after, []
        for condition in again:
            self.add(condition)
        for branch in self.branches:
            branch.part.settle()

    @property
    def _full(self) -> bool:
        return any(branch.how == "full" for branch in self.branches)

    def _without_full(self, k: int, condition: exp.Expression) -> bool:
        """Make a full outer join a left or an inner join, if a condition rejects its missing rows.

        The other occurrences and parts stay beside it. Parts that hang on its left side need the rows of that side.
        """
        branch, others = self.branches[k], self.branches[:k] + self.branches[k + 1 :]
        over = set(branch.over)
        if rejects(condition, set(branch.part.occurrences)) and not any(over & _read_by(each.part) for each in others):
            # No row of the left side alone remains.
            below = JoinPart([*branch.over], branch.part.conditions)
            self.occurrences = [i for i in self.occurrences if i not in over] + branch.part.occurrences
        elif rejects(condition, over):
            below = branch.part
        else:
            return False
        self.branches = [Hung("left", below), *others]
        return True

    def hang(self, hung: Hung, node: exp.Expression, source: StatementText) -> None:
        """Hang a part on this part, or on the branch that its conditions read and whose missing rows they reject.

        Raises SqlError for a part that reads branches which do not hang on each other.
        """
        for each in hung.part.everywhere():
            if each.as_of:
                raise source.error(
                    each.as_of[0].node,
                    "an as-of join extends the rows of the whole statement; write it after the other joins",
                )
        inside = frozenset(hung.part.all())
        read = _read_by(hung.part) - inside
        host, path = self, set(self.occurrences)
        if hung.how == "semi":
            for condition in hung.part.conditions:
                self._need(condition, inside)
            path = set(self.occurrences)
        while not (read & self.shown()) <= path:
            below = [each.part for each in host.branches if each.how == "left" and read & each.part.shown()]
            if len(below) != 1 or hung.how not in ("left",):
                raise source.error(
                    node,
                    "this join reads columns that may be missing because of an outer join before it; write the"
                    " joins that it depends on as inner joins, or put them first",
                )
            host = below[0]
            path |= set(host.occurrences)
        if host is not self and not any(rejects(each, host.shown()) for each in hung.part.conditions):
            raise source.error(
                node,
                "whether this join finds a row depends on columns that may be missing, also where they are missing,"
                " which is not supported. Write two SELECTs with UNION ALL: one with JOIN where they are there, one"
                " with NOT EXISTS where they are not",
            )
        host.branches.append(hung)

    def _need(self, condition: exp.Expression, inside: Iterable[int]) -> None:
        """Make those left branches inner whose missing rows make a condition of a semi join untrue."""
        for k, branch in reversed(list(enumerate(self.branches))):
            if (
                branch.how == "left"
                and reads(condition) & branch.part.shown()
                and rejects(condition, branch.part.shown())
            ):
                del self.branches[k]
                self.absorb(branch.part)


def _read_by(part: JoinPart) -> frozenset[int]:
    """Return the occurrences that the conditions of a part read."""
    return frozenset().union(*(reads(each) for each in _conditions_below(part)))


def _conditions_below(part: JoinPart) -> Iterator[exp.Expression]:
    yield from part.conditions
    for branch in part.branches:
        yield from _conditions_below(branch.part)
