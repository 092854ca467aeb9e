"""Expressions to try of each function, over the columns of ``typed_rows``."""

from __future__ import annotations

__all__ = ["CASES"]

_WHOLE = ("by", "sh", "i", "l")
_PAIRS = (("by", "bz"), ("sh", "si"), ("i", "j"), ("l", "m"), ("f", "g"), ("d", "e"))
_SAME = (*_PAIRS, ("p", "q"), ("s", "t"), ("bi", "bi"), ("da", "db"), ("ts", "tt"))
_ALL = (*_SAME, ("tn", "tm"), ("dc", "dd"))
_NUMBERS = ("by", "sh", "i", "l", "f", "d")
_KINDS = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double")


def _binary(*operators: str, pairs: tuple[tuple[str, str], ...]) -> list[str]:
    return [f"{a} {o} {b}" for o in operators for a, b in pairs]


CASES: dict[str, list[str]] = {
    "arithmetic": [
        *_binary("+", "-", "*", "/", "%", pairs=_PAIRS),
        *("l + i", "i * 2", "d / 3", "l % 7", "by + 1", "i / 0", "1 / i", "l * 3"),
        *(
            "l * l",
            "l * -1",
            "m * (n % 5000000000)",
            "(l % 4000000000) * (m % 4000000000)",
        ),
        *(
            f"try_{name}({a}, {b})"
            for a, b in _PAIRS
            for name in ("add", "subtract", "multiply")
        ),
        *(f"try_divide({a}, {b})" for a, b in _PAIRS),
        *(f"try_mod({a}, {b})" for a, b in _PAIRS),
        *("l div m", "i div j", "l div -1", "l div 0", "try_divide(l + m, i)"),
        *("i + (10 / j)", "(10 / i) / (10 / j)", "try_add(i + j, 1)"),
        *(f"pmod({a}, {b})" for a, b in _PAIRS),
        *(f"-{a}" for a in _NUMBERS),
        *(f"abs({a})" for a in _NUMBERS),
        *(f"positive({a})" for a in _NUMBERS),
        *("i & j", "l | m", "i ^ j", "~by", "~l"),
    ],
    "comparison": [
        *_binary("=", "!=", "<", "<=", ">", ">=", "<=>", pairs=_ALL),
        *(
            "d = 0",
            "d < 'NaN'",
            "d = double('NaN')",
            "s < 'b'",
            "i = 3",
            "10 / i > 10 / j",
        ),
        *("i between 1 and 5", "d not between e and x", "s between 'a' and 'b'"),
    ],
    "logic": [
        *("p and q", "p or q", "not p", "p and null", "p or null", "p = q and q"),
        *("i != 0 and 10 / i > 1", "i = 0 or 10 / i > 1", "10 / i > 1 and i != 0"),
        *("p and 10 / i > 1", "p or 10 / i > 1", "p != q"),
        *("p is true", "p is not false", "p is null"),
        *(
            "i in (1, 2, 3)",
            "i in (1, null)",
            "i not in (1, 2, null)",
            "i in (j, k, 3)",
        ),
        *("d in (0, 1.5D, double('NaN'))", "d in (e, x)", "s in ('a', 'ab', null)"),
        *("i in (10 / j, 2)", "s not in ('a', 'b')", "p in (true)", "l in (1, 2)"),
        *(
            "da in (date'1970-01-01', date'0001-01-01')",
            "by in (1, 2)",
        ),
        *(f"{c} is null" for c in ("p", "i", "d", "s", "ts", "ai", "st")),
        *(f"{c} is not null" for c in ("p", "i", "d", "s", "ts", "ma")),
        *("isnan(d)", "isnan(f)", "nanvl(d, e)", "nanvl(d, 10 / e)", "isnull(i + j)"),
        *(
            "coalesce(i, j)",
            "coalesce(s, t, 'none')",
            "coalesce(i, 10 div j)",
            "nvl(d, 0)",
        ),
        *(
            "ifnull(s, t)",
            "nullif(i, j)",
            "nullif(d, e)",
            "nvl2(i, j, k)",
            "coalesce(st, st)",
        ),
        *(
            "nullifzero(i)",
            "zeroifnull(l)",
            "equal_null(i, j)",
        ),
        *(
            "if(i != 0, 10 / i, null)",
            "if(p, i, l)",
            "if(p, s, 'no')",
            "if(p, ai, null)",
        ),
        *("case when i = 0 then 0 when i > 5 then 100 / i else 1 end", "if(p, d, e)"),
        *(
            "case i when 1 then 'a' when 2 then 'b' end",
            "case when p then s else t end",
        ),
        *("case when p then st when q then null end", "case when p then ma end"),
        *("greatest(i, j, k)", "least(i, j, k)", "greatest(d, e, x)", "least(d, e, 0)"),
        *("greatest(s, t, u)", "least(s, 'b')", "greatest(ts, tt)", "least(da, db)"),
        *("greatest(p, q)", "least(dc, dd)", "greatest(f, g)", "least(bi, X'61')"),
    ],
    "casts of numbers": [
        f"cast({column} as {kind})"
        for column in (*_NUMBERS, "p", "e")
        for kind in _KINDS
    ]
    + [f"try_cast({c} as {kind})" for c in ("l", "d", "f") for kind in _KINDS],
}
