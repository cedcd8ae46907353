"""The shapes of `eddy bench adaptivity`.

Where the order of joins matters, one part of the query kills nearly all combinations and the others multiply them; a
change moves the part that kills. Results stay few, so that what is measured is the search for them.

same-key    streams on one key. Under mjoin all orders are the same work
star        a centre with four attributes, each of which a small stream has: all orders are the same work, too
chain-4     R(a) S(a, b) T(b, c) U(c): the same. In the *skewed* one most arrivals are of U, which finds many T and S
            before R kills them: storing R, S and T saves that work, and not a choice of order
chain-6     a tuple in the middle goes left or right first
cycle-4     a tuple goes round one way or the other
clique-4    a class for each pair of streams: any stream may come next
snowflake   C(a, b, c) with arms S(a, x) X(x), T(b, y) Y(y), U(c, z) Z(z): which arm first
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from bench.workloads.draws import Draw, between
from bench.workloads.shapes import ABRUPT, FAST_OSCILLATION, SLOW_DRIFT, SLOW_OSCILLATION, STATIONARY, Phase, Shape

Draws = dict[str, Draw]
Regime = tuple[str, Draws, tuple[float, ...]]
"""What phases are made of: a name, draws and rates."""

NONE: Mapping[int, Any] = MappingProxyType({})

UNIFORM, ZIPF, CORRELATED, HOT = "uniform", "Zipf", "correlated", "hot key"


def named(family: str, keys: str, change: str) -> str:
    """Return the name of a shape, one word."""
    return f"{family} {keys} {change}".replace(" ", "-").lower()


def steady(regime: Regime, arrivals: int) -> tuple[Phase, ...]:
    """Return one phase."""
    name, draws, rates = regime
    return (Phase(name, arrivals, draws, rates),)


def turns(regimes: list[Regime], each: int, times: int = 1) -> tuple[Phase, ...]:
    """Return phases of `each` arrivals, the regimes taking turns so many times."""
    return tuple(Phase(name, each, draws, rates) for _ in range(times) for name, draws, rates in regimes)


def drifting(regimes: list[Regime], each: int, slices: int) -> tuple[Phase, ...]:
    """Return phases that lead from one regime to the next, in so many slices of a step each."""
    made: list[Phase] = []
    for (_, draws, rates), (_, later, _) in pairwise(regimes):
        for _ in range(slices):
            part = len(made) % slices / max(slices - 1, 1)
            mixed = {column: between(draw, later[column], part) for column, draw in draws.items()}
            made.append(Phase(f"slice {len(made)}", each, mixed, rates))
    return tuple(made)


# Where order matters little


def one_key(streams: int, draw: Draw, others: Mapping[int, Draw] = NONE, kills: Mapping[int, float] = NONE) -> Regime:
    """Return the regime of streams on one key: some are drawn in another way, some have few of the keys."""
    draws = {}
    for i in range(streams):
        own = others.get(i, draw)
        draws[f"S{i:02}.k"] = replace(own, hit=kills.get(i, own.hit))
    return f"{', '.join(f'S{i:02}' for i in sorted(kills)) or 'none'} kills", draws, (1.0,) * streams


def same_key(keys: str, change: str, joins: int, rows: int, phases: tuple[Phase, ...]) -> Shape:
    """Return streams on one key, one more than there are joins."""
    names = {f"S{i:02}": "k" for i in range(joins + 1)}
    return Shape(named(f"same-key-{joins}", keys, change), f"same-key-{joins}", keys, change, names, rows, phases)


STAR = {"C": "abcd", "S": "a", "T": "b", "U": "c", "V": "d"}


def points(rows: int, draw: Draw, killer: str = "") -> Regime:
    """Return the regime of a star in which one point has few of the keys of the centre."""
    draws = {}
    for stream, letter in list(STAR.items())[1:]:
        draws[f"C.{letter}"] = draw
        draws[f"{stream}.{letter}"] = replace(draw, size=rows, hot=0.0, hit=0.1 if stream == killer else 1.0)
    return f"{killer} kills", draws, (2.0, 1.0, 1.0, 1.0, 1.0)


def star(keys: str, change: str, rows: int, phases: tuple[Phase, ...]) -> Shape:
    """Return a star of five streams."""
    return Shape(named("star-5", keys, change), "star-5", keys, change, STAR, rows, phases)


# Chains

CHAIN4 = {"R": "a", "S": "ab", "T": "bc", "U": "c"}
CHAIN6 = {"A": "a", "B": "ab", "C": "bc", "D": "cd", "E": "de", "F": "e"}


def chain4(rates: tuple[float, ...], fan: int, rows: int, kills: float = 1.0, near: str = "R") -> Regime:
    """Return the regime of the chain of four in which a tuple finds `fan` others, and the stream `near` kills."""
    size = max(rows // fan, 1)
    draws = {f"{stream}.{letter}": Draw(size) for stream, letters in CHAIN4.items() for letter in letters}
    last = {"R": "a", "U": "c"}[near]
    draws[f"{near}.{last}"] = Draw(rows, kills)
    draws[{"R": "S.a", "U": "T.c"}[near]] = Draw(rows)
    return f"{near} kills", draws, rates


def reversal(rows: int, each: int) -> tuple[Phase, ...]:
    """Return phases in which most arrivals are of U, then of R; the other end kills.

    For a moment in between both kill, and the window of U is renewed, or tuples of R would find only what passes.
    """
    fast = (1.0, 1.0, 1.0, 57.0)
    (_, before, _), (_, after, _) = chain4(fast, 16, rows, 0.005), chain4(fast, 16, rows, 0.005, "U")
    both = before | {"U.c": after["U.c"], "T.c": after["T.c"]}
    return (
        Phase("U is fast", each, before, fast),
        Phase("both kill", 2 * rows, both, fast),
        Phase("R is fast", each, after, fast[::-1]),
    )


def chain6(rows: int, killer: str, fan: int = 7, kills: float = 0.02, skew: float = 0.0) -> Regime:
    """Return the regime of the chain of six in which stream A or F kills; most arrivals are in the middle."""
    draws = {
        f"{stream}.{letter}": Draw(rows // fan, skew=skew) for stream, letters in CHAIN6.items() for letter in letters
    }
    for end, inner in (("A.a", "B.a"), ("F.e", "E.e")):
        draws[end] = Draw(rows, kills if end[0] == killer else 1.0)
        draws[inner] = Draw(rows, kills if end[0] == killer else 1.0)
    return f"{killer} kills", draws, (1.0, 1.0, 8.0, 8.0, 1.0, 1.0)


def chain(
    keys: str, change: str, streams: Mapping[str, str], rows: int, phases: tuple[Phase, ...], what: str = ""
) -> Shape:
    """Return a chain."""
    family = f"chain-{len(streams)}{what}"
    return Shape(named(family, keys, change), family, keys, change, streams, rows, phases)


# Cycles and cliques

CYCLE = {"A": "ab", "B": "bc", "C": "cd", "D": "da"}
CLIQUE = {"A": "pqr", "B": "pst", "C": "qsu", "D": "rtu"}


def sized(streams: Mapping[str, str], rows: int, fans: Mapping[str, float], name: str, skew: float = 0.0) -> Regime:
    """Return the regime in which a join by a letter finds so many tuples of the other stream on average."""
    draws = {
        f"{stream}.{letter}": Draw(max(round(rows / fans[letter]), 1), skew=skew)
        for stream, letters in streams.items()
        for letter in letters
    }
    return name, draws, (1.0,) * len(streams)


def planted(regime: Regime, share: float = 0.003) -> Regime:
    """Return the regime with a share of tuples that have key 0 in all columns: without them a clique has no results."""
    name, draws, rates = regime
    made = {}
    for column, draw in draws.items():
        stream, letter = column.split(".")
        first = CLIQUE[stream][0]
        made[column] = replace(draw, hot=share, luck="" if letter == first else first)
    return name, made, rates


def closed(keys: str, change: str, streams: Mapping[str, str], rows: int, phases: tuple[Phase, ...]) -> Shape:
    """Return a cycle or a clique."""
    family = f"{'cycle' if streams is CYCLE else 'clique'}-{len(streams)}"
    return Shape(named(family, keys, change), family, keys, change, streams, rows, phases)


# Snowflake

ARMS = {"S": ("a", "X", "x"), "T": ("b", "Y", "y"), "U": ("c", "Z", "z")}
ARM_RATES = (2.0, *(1.0,) * 6)
SNOWFLAKE = {"C": "abc", "S": "ax", "X": "x", "T": "by", "Y": "y", "U": "cz", "Z": "z"}


def arms(rows: int, killer: str, fan: int = 12, kills: float = 0.02, **others: Draw) -> Regime:
    """Return the regime in which one arm kills; each tuple of C finds `fan` tuples in an arm on average.

    The arm kills twice: few tuples of C find anything there, and few of what they find goes on.
    """
    draws: Draws = {}
    for arm, (near, end, far) in ARMS.items():
        hit = kills if arm == killer else 1.0
        draws[f"C.{near}"] = Draw(rows // fan, hit)
        draws[f"{arm}.{near}"] = Draw(rows // fan)
        draws[f"{arm}.{far}"] = Draw(rows, hit)
        draws[f"{end}.{far}"] = Draw(rows)
    return f"{killer} kills", draws | {name.replace("_", "."): draw for name, draw in others.items()}, ARM_RATES


def either(rows: int, killer: str, fan: int = 10, kills: float = 0.002) -> Regime:
    """Return the regime in which S or U kills, and each tuple of C is killed by one of the two.

    So there are few results also where windows hold tuples of both regimes, and in between.
    """
    _, draws, rates = arms(rows, "", fan)
    draws["C.a"] = Draw(rows // fan, kills if killer == "S" else 1.0)
    draws["C.c"] = Draw(rows // fan, kills if killer == "U" else 1.0, luck="-a")
    return f"{killer} kills", draws, rates


def snowflake(keys: str, change: str, rows: int, phases: tuple[Phase, ...], push: int = 10_000) -> Shape:
    """Return a snowflake of seven streams."""
    return Shape(named("snowflake-7", keys, change), "snowflake-7", keys, change, SNOWFLAKE, rows, phases, push=push)


def _shapes() -> list[Shape]:
    # Of streams on one key only two are skewed: results go with the product of all shares of the commonest key.
    plain, some = Draw(1_000), {0: Draw(1_000, skew=0.8), 5: Draw(1_000, skew=0.6)}
    even, fast = (1.0,) * 4, (1.0, 1.0, 1.0, 57.0)
    left, right = chain6(1_000, "A"), chain6(1_000, "F")
    skewed = chain6(1_000, "F", fan=6, skew=0.4)
    clockwise = sized(CYCLE, 2_000, {"a": 0.2, "b": 12, "c": 12, "d": 12}, "a is rare")
    counter = sized(CYCLE, 2_000, {"a": 12, "b": 12, "c": 0.2, "d": 12}, "c is rare")
    pairs = planted(sized(CLIQUE, 2_000, dict(zip("pqrstu", (40, 5, 0.5, 40, 5, 0.5), strict=True)), "r, u are rare"))
    others = planted(sized(CLIQUE, 2_000, dict(zip("pqrstu", (0.5, 5, 40, 0.5, 5, 40), strict=True)), "p, s are rare"))
    third, turning, wide = arms(1_000, "U"), *([either(rows, killer) for killer in "US"] for rows in (1_000, 4_000))
    # By single columns U kills least. But what S lets pass T lets pass, and U kills nearly all of it.
    together = arms(1_000, "", C_a=Draw(83, 0.48), C_b=Draw(83, 0.48, luck="a"), C_c=Draw(83, 0.5212, luck="-a"))
    zipf = arms(1_000, "U", 9, C_a=Draw(111, skew=0.8), C_b=Draw(111, skew=0.8), T_b=Draw(111, skew=0.3))
    hot = arms(1_000, "U", 10, C_a=Draw(100, hot=0.1), T_b=Draw(100, hot=0.05))
    return [
        same_key(UNIFORM, STATIONARY, 4, 2_000, steady(one_key(5, Draw(2_000)), 1_000_000)),
        same_key(ZIPF, ABRUPT, 10, 1_000, turns([one_key(11, plain, some, {k: 0.3}) for k in (2, 9)], 300_000)),
        same_key(
            UNIFORM, SLOW_OSCILLATION, 20, 1_000, turns([one_key(21, plain, {}, {k: 0.3}) for k in (2, 19)], 105_000, 2)
        ),
        star(ZIPF, STATIONARY, 2_000, steady(points(2_000, Draw(2_000, 0.55, skew=0.5)), 600_000)),
        star(HOT, ABRUPT, 2_000, turns([points(2_000, Draw(2_000, hot=0.05), k) for k in "SV"], 300_000)),
        chain(UNIFORM, STATIONARY, CHAIN4, 2_000, steady(chain4(even, 1, 2_000), 600_000)),
        chain(UNIFORM, STATIONARY, CHAIN4, 1_000, steady(chain4(fast, 16, 1_000, 0.005), 300_000), "-skewed-rates"),
        chain(UNIFORM, ABRUPT, CHAIN4, 500, reversal(500, 150_000), "-skewed-rates"),
        chain(ZIPF, STATIONARY, CHAIN6, 1_000, steady(skewed, 200_000)),
        chain(UNIFORM, ABRUPT, CHAIN6, 1_000, turns([left, right], 150_000)),
        closed(UNIFORM, STATIONARY, CYCLE, 2_000, steady(clockwise, 200_000)),
        closed(UNIFORM, SLOW_OSCILLATION, CYCLE, 2_000, turns([clockwise, counter], 60_000, 2)),
        closed(UNIFORM, STATIONARY, CLIQUE, 2_000, steady(pairs, 200_000)),
        closed(UNIFORM, ABRUPT, CLIQUE, 2_000, turns([pairs, others], 100_000)),
        snowflake(UNIFORM, STATIONARY, 1_000, steady(third, 400_000)),
        snowflake(ZIPF, STATIONARY, 1_000, steady(zipf, 400_000)),
        snowflake(CORRELATED, STATIONARY, 1_000, steady(together, 200_000)),
        snowflake(HOT, STATIONARY, 1_000, steady(hot, 400_000)),
        snowflake(UNIFORM, ABRUPT, 1_000, turns(turning, 200_000)),
        snowflake(UNIFORM, SLOW_DRIFT, 1_000, drifting(turning, 50_000, 8)),
        snowflake(UNIFORM, SLOW_OSCILLATION, 1_000, turns(turning, 80_000, 3)),
        snowflake(UNIFORM, FAST_OSCILLATION, 4_000, turns(wide, 4_000, 40), push=4_000),
    ]


SHAPES = {shape.name: shape for shape in _shapes()}
"""All shapes by name."""
