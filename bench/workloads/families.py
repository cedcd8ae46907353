"""The shapes of `eddy bench adaptivity`.

If the order of joins matters, one part of the query eliminates nearly all combinations and the other parts multiply
them; a change moves the part that eliminates. There are few results, so most of the time is spent on the search for
them.

same-key    streams on one key. Under mjoin all orders do the same work
star        a centre with four attributes, each joined by a small stream: all orders do the same work as well
chain-4     R(a) S(a, b) T(b, c) U(c): all orders do the same work as well. With *skewed rates* most arrivals are of U,
            which finds many T and S before R eliminates them: storing R, S and T saves that work, but no order does
chain-6     a tuple in the middle is first joined to the left or to the right
cycle-4     a tuple is joined around the cycle in one direction or the other
clique-4    a class for each pair of streams: any stream may come next
snowflake   C(a, b, c) with arms S(a, x) X(x), T(b, y) Y(y), U(c, z) Z(z): one of the arms is joined first
selective   a chain or a snowflake in which all columns multiply except one, which passes so few tuples that there are
            0.1 results per arrival. With no-good marks the order has little influence; with *skewed rates* most
            arrivals are far from that column
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from bench.workloads.shapes import (
    ABRUPT,
    FAST_OSCILLATION,
    SLOW_DRIFT,
    SLOW_OSCILLATION,
    STATIONARY,
    Draw,
    Phase,
    WorkloadShape,
    between,
)

Draws = dict[str, Draw]
Regime = tuple[str, Draws, tuple[float, ...]]
"""The parts of a phase: a name, draws and rates."""

UNIFORM, ZIPF, CORRELATED, HOT = "uniform", "Zipf", "correlated", "hot key"
STAR = {"C": "abcd", "S": "a", "T": "b", "U": "c", "V": "d"}
CHAIN4 = {"R": "a", "S": "ab", "T": "bc", "U": "c"}
CHAIN6 = {"A": "a", "B": "ab", "C": "bc", "D": "cd", "E": "de", "F": "e"}
CYCLE = {"A": "ab", "B": "bc", "C": "cd", "D": "da"}
CLIQUE = {"A": "pqr", "B": "pst", "C": "qsu", "D": "rtu"}
SNOWFLAKE = {"C": "abc", "S": "ax", "X": "x", "T": "by", "Y": "y", "U": "cz", "Z": "z"}
ARMS = {"S": ("a", "X", "x"), "T": ("b", "Y", "y"), "U": ("c", "Z", "z")}


def shape(
    family: str,
    keys: str,
    change: str,
    streams: Mapping[str, str],
    rows: int,
    phases: tuple[Phase, ...],
    push: int = 10_000,
) -> WorkloadShape:
    """Return a shape whose name consists of family, keys and change."""
    name = f"{family} {keys} {change}".replace(" ", "-").lower()
    return WorkloadShape(name, family, keys, change, streams, rows, phases, push=push)


def turns(regimes: list[Regime], each: int, times: int = 1) -> tuple[Phase, ...]:
    """Return phases of `each` arrivals, in which the regimes take turns `times` times."""
    return tuple(Phase(name, each, draws, rates) for _ in range(times) for name, draws, rates in regimes)


def drifting(regimes: list[Regime], each: int, slices: int) -> tuple[Phase, ...]:
    """Return phases that lead from one regime to the next, in `slices` steps each."""
    made: list[Phase] = []
    for (_, draws, rates), (_, later, _) in pairwise(regimes):
        for k in range(slices):
            mixed = {column: between(draw, later[column], k / max(slices - 1, 1)) for column, draw in draws.items()}
            made.append(Phase(f"slice {len(made)}", each, mixed, rates))
    return tuple(made)


def one_key(streams: int, draw: Draw, others: Mapping[int, Draw], kills: Mapping[int, float]) -> Regime:
    """Return the regime of streams on one key; `others` are drawn differently, and `kills` have few keys."""
    by_stream = {i: others.get(i, draw) for i in range(streams)}
    draws = {f"S{i:02}.k": replace(drawn, hit=kills.get(i, drawn.hit)) for i, drawn in by_stream.items()}
    return f"{', '.join(f'S{i:02}' for i in sorted(kills)) or 'none'} kills", draws, (1.0,) * streams


def points(rows: int, draw: Draw, killer: str = "") -> Regime:
    """Return the regime of a star in which one point has few of the keys of the centre."""
    draws = {}
    for stream, letter in list(STAR.items())[1:]:
        draws[f"C.{letter}"] = draw
        draws[f"{stream}.{letter}"] = replace(draw, size=rows, hot=0.0, hit=0.1 if stream == killer else 1.0)
    return f"{killer} kills", draws, (2.0, 1.0, 1.0, 1.0, 1.0)


def chain4(rates: tuple[float, ...], fan: int, rows: int, kills: float = 1.0, near: str = "R") -> Regime:
    """Return the regime of the chain of four in which a tuple finds `fan` others, and the stream `near` eliminates."""
    size = max(rows // fan, 1)
    draws = {f"{stream}.{letter}": Draw(size) for stream, letters in CHAIN4.items() for letter in letters}
    end, inner = {"R": ("R.a", "S.a"), "U": ("U.c", "T.c")}[near]
    draws |= {end: Draw(rows, kills), inner: Draw(rows)}
    return f"{near} kills", draws, rates


def reversal(rows: int, each: int) -> tuple[Phase, ...]:
    """Return phases in which most arrivals are of U, then of R; the other end eliminates.

    In a short phase in between, both ends eliminate, and the window of U is renewed; otherwise tuples of R would find
    only tuples that pass.
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
    """Return the regime of the chain of six in which stream A or F eliminates; most arrivals are in the middle."""
    size = rows // fan
    draws = {f"{name}.{letter}": Draw(size, skew=skew) for name, letters in CHAIN6.items() for letter in letters}
    for end, inner in (("A.a", "B.a"), ("F.e", "E.e")):
        draws[end] = draws[inner] = Draw(rows, kills if end[0] == killer else 1.0)
    return f"{killer} kills", draws, (1.0, 1.0, 8.0, 8.0, 1.0, 1.0)


def sized(streams: Mapping[str, str], rows: int, fans: Mapping[str, float], name: str, plant: float = 0.0) -> Regime:
    """Return the regime in which a join by a letter finds `fans` tuples of the other stream on average.

    plant   share of tuples that have key 0 in all columns; without them a clique has no results
    """
    draws = {}
    for stream, letters in streams.items():
        for letter in letters:
            luck = letters[0] if plant and letter != letters[0] else ""
            draws[f"{stream}.{letter}"] = Draw(max(round(rows / fans[letter]), 1), hot=plant, luck=luck)
    return name, draws, (1.0,) * len(streams)


def arms(rows: int, killer: str, fan: int = 12, kills: float = 0.02, **others: Draw) -> Regime:
    """Return the regime in which one arm eliminates; each tuple of C finds `fan` tuples in an arm on average.

    The arm eliminates twice: few tuples of C find a partner in the arm, and few of these tuples find the end of the
    arm.
    """
    draws: Draws = {}
    for arm, (near, end, far) in ARMS.items():
        hit = kills if arm == killer else 1.0
        draws |= {f"C.{near}": Draw(rows // fan, hit), f"{arm}.{near}": Draw(rows // fan)}
        draws |= {f"{arm}.{far}": Draw(rows, hit), f"{end}.{far}": Draw(rows)}
    draws |= {name.replace("_", "."): draw for name, draw in others.items()}
    return f"{killer} kills", draws, (2.0, *(1.0,) * 6)


def either(rows: int, killer: str, fan: int = 10, kills: float = 0.002) -> Regime:
    """Return the regime in which S or U eliminates, and each tuple of C is eliminated by one of the two.

    So there are few results even if windows have tuples of both regimes.
    """
    c_a = Draw(rows // fan, kills if killer == "S" else 1.0)
    c_c = Draw(rows // fan, kills if killer == "U" else 1.0, luck="-a")
    name, draws, rates = arms(rows, "", fan, C_a=c_a, C_c=c_c)
    return f"{killer}{name}", draws, rates


def selective(streams: Mapping[str, str], rows: int, fan: int, column: str, fast: str, rate: float) -> Regime:
    """Return the regime in which each join finds `fan` tuples, but 0.1 results per arrival pass `column`.

    fast, rate   streams that have `rate` times the arrivals of another
    """
    draws = {f"{stream}.{letter}": Draw(rows // fan) for stream, letters in streams.items() for letter in letters}
    letter = column[-1]
    draws |= {f"{stream}.{letter}": Draw(rows) for stream, letters in streams.items() if letter in letters}
    draws[column] = Draw(rows, hit=0.1 / fan ** (len(streams) - 2))
    return f"{column} eliminates", draws, tuple(rate if stream in fast else 1.0 for stream in streams)


def _selective_shapes() -> list[WorkloadShape]:
    chain, flake = (CHAIN6, 3, "E.e"), (SNOWFLAKE, 2, "U.z")
    kinds = {
        "chain-6-selective": (chain, 10_000, "", 1.0),
        "chain-6-selective-skewed-rates": (chain, 10_000, "A", 20.0),
        "chain-6-selective-large": (chain, 100_000, "", 1.0),
        "snowflake-7-selective": (flake, 10_000, "", 1.0),
        "snowflake-7-selective-skewed-rates": (flake, 10_000, "XY", 6.0),
        "snowflake-7-selective-large": (flake, 100_000, "", 1.0),
    }
    made = []
    for name, ((streams, fan, column), rows, fast, rate) in kinds.items():
        phases = turns([selective(streams, rows, fan, column, fast, rate)], 1_000_000)
        made.append(shape(name, UNIFORM, STATIONARY, streams, rows, phases))
    return made


def _shapes() -> list[WorkloadShape]:
    # Of streams on one key only two are skewed: results grow with the product of all shares of the most common key.
    plain, some = Draw(1_000), {0: Draw(1_000, skew=0.8), 5: Draw(1_000, skew=0.6)}
    even, fast = (1.0,) * 4, (1.0, 1.0, 1.0, 57.0)
    left, right, skewed = chain6(1_000, "A"), chain6(1_000, "F"), chain6(1_000, "F", fan=6, skew=0.4)
    clockwise = sized(CYCLE, 2_000, {"a": 0.2, "b": 12, "c": 12, "d": 12}, "a is rare")
    counter = sized(CYCLE, 2_000, {"a": 12, "b": 12, "c": 0.2, "d": 12}, "c is rare")
    fans = [
        dict(zip("pqrstu", amounts, strict=True)) for amounts in ((40, 5, 0.5, 40, 5, 0.5), (0.5, 5, 40, 0.5, 5, 40))
    ]
    rare = zip(fans, ("r, u", "p, s"), strict=True)
    pairs, others = (sized(CLIQUE, 2_000, fan, f"{name} are rare", 0.003) for fan, name in rare)
    third, turning, wide = arms(1_000, "U"), *([either(rows, killer) for killer in "US"] for rows in (1_000, 4_000))
    # Judged by single columns, U eliminates least. But T passes all tuples that S passes, and U eliminates nearly all
    # of these.
    together = arms(1_000, "", C_a=Draw(83, 0.48), C_b=Draw(83, 0.48, luck="a"), C_c=Draw(83, 0.5212, luck="-a"))
    zipf = arms(1_000, "U", 9, C_a=Draw(111, skew=0.8), C_b=Draw(111, skew=0.8), T_b=Draw(111, skew=0.3))
    hot = arms(1_000, "U", 10, C_a=Draw(100, hot=0.1), T_b=Draw(100, hot=0.05))
    keyed = {n: {f"S{i:02}": "k" for i in range(n + 1)} for n in (4, 10, 20)}
    ten = turns([one_key(11, plain, some, {k: 0.3}) for k in (2, 9)], 300_000)
    twenty = turns([one_key(21, plain, {}, {k: 0.3}) for k in (2, 19)], 105_000, 2)
    zipf_star = points(2_000, Draw(2_000, 0.55, skew=0.5))
    hot_star = [points(2_000, Draw(2_000, hot=0.05), k) for k in "SV"]
    skewed_rates, flake = "chain-4-skewed-rates", "snowflake-7"
    return [
        shape("same-key-4", UNIFORM, STATIONARY, keyed[4], 2_000, turns([one_key(5, Draw(2_000), {}, {})], 1_000_000)),
        shape("same-key-10", ZIPF, ABRUPT, keyed[10], 1_000, ten),
        shape("same-key-20", UNIFORM, SLOW_OSCILLATION, keyed[20], 1_000, twenty),
        shape("star-5", ZIPF, STATIONARY, STAR, 2_000, turns([zipf_star], 600_000)),
        shape("star-5", HOT, ABRUPT, STAR, 2_000, turns(hot_star, 300_000)),
        shape("chain-4", UNIFORM, STATIONARY, CHAIN4, 2_000, turns([chain4(even, 1, 2_000)], 600_000)),
        shape(skewed_rates, UNIFORM, STATIONARY, CHAIN4, 1_000, turns([chain4(fast, 16, 1_000, 0.005)], 300_000)),
        shape(skewed_rates, UNIFORM, ABRUPT, CHAIN4, 500, reversal(500, 150_000)),
        shape("chain-6", ZIPF, STATIONARY, CHAIN6, 1_000, turns([skewed], 200_000)),
        shape("chain-6", UNIFORM, ABRUPT, CHAIN6, 1_000, turns([left, right], 150_000)),
        shape("cycle-4", UNIFORM, STATIONARY, CYCLE, 2_000, turns([clockwise], 200_000)),
        shape("cycle-4", UNIFORM, SLOW_OSCILLATION, CYCLE, 2_000, turns([clockwise, counter], 60_000, 2)),
        shape("clique-4", UNIFORM, STATIONARY, CLIQUE, 2_000, turns([pairs], 200_000)),
        shape("clique-4", UNIFORM, ABRUPT, CLIQUE, 2_000, turns([pairs, others], 100_000)),
        shape(flake, UNIFORM, STATIONARY, SNOWFLAKE, 1_000, turns([third], 400_000)),
        shape(flake, ZIPF, STATIONARY, SNOWFLAKE, 1_000, turns([zipf], 400_000)),
        shape(flake, CORRELATED, STATIONARY, SNOWFLAKE, 1_000, turns([together], 200_000)),
        shape(flake, HOT, STATIONARY, SNOWFLAKE, 1_000, turns([hot], 400_000)),
        shape(flake, UNIFORM, ABRUPT, SNOWFLAKE, 1_000, turns(turning, 200_000)),
        shape(flake, UNIFORM, SLOW_DRIFT, SNOWFLAKE, 1_000, drifting(turning, 50_000, 8)),
        shape(flake, UNIFORM, SLOW_OSCILLATION, SNOWFLAKE, 1_000, turns(turning, 80_000, 3)),
        shape(flake, UNIFORM, FAST_OSCILLATION, SNOWFLAKE, 4_000, turns(wide, 4_000, 40), push=4_000),
    ]


SHAPES = {shape.name: shape for shape in (*_shapes(), *_selective_shapes())}
"""All shapes by name."""
