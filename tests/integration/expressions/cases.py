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
    "strings": [
        *("concat(s, t)", "s || '-' || t || u", "concat(bi, bi)", "concat(s, i, p)"),
        *("substring(s, 2, 3)", "substring(s, 0, 2)", "substring(s, -3, 2)"),
        *("substring(s, i, j)", "substr(s, 2)", "left(s, 2)", "right(s, 2)"),
        *("substring(bi, 2)", "substring(s, 2, -1)", "substring(s, -50, 49)"),
        *("upper(s)", "lower(s)", "ucase(t)", "lcase(u)", "reverse(s)"),
        *("trim(s)", "ltrim(s)", "rtrim(t)", "trim(BOTH 'a' FROM s)", "btrim(s, 'ab')"),
        *("length(s)", "char_length(t)", "length(bi)", "octet_length(s)"),
        *("s like 'a%'", "s like '%b_'", "s like '100\\\\%'", "s not like '%,%'"),
        *("s like 'a!%b' escape '!'", "s like '_'", "s like null", "s like ''"),
        *("s rlike 'a.*b'", "s rlike '^[A-Z]+'", "s rlike 'c$'", "s rlike '\\\\d+'"),
        *(
            "s rlike '^(a|b)+$'",
            "s rlike '\\\\s'",
            "s rlike '[^a-z]{2,}'",
            "s rlike '.'",
        ),
        *("startswith(s, 'a')", "endswith(s, t)", "contains(s, 'b')", "contains(s, t)"),
        *("replace(s, 'a', 'zz')", "replace(s, t, u)", "replace(s, 'b')"),
        *("instr(s, 'b')", "repeat(s, 2)", "repeat(s, by % 3)", "concat_ws(',', s, t)"),
        *("concat_ws(s, t, u)", "if(length(s) > 2, upper(s), 'short')"),
    ],
    "text casts": [
        *(f"try_cast({c} as {k})" for c in ("ns", "s") for k in _KINDS),
        *(f"cast({c} as {k})" for c in ("ns",) for k in ("int", "double", "boolean")),
        *(f"try_cast(ds as {k})" for k in ("date", "timestamp", "timestamp_ntz")),
        *("cast(ds as date)", "cast(ds as timestamp)", "to_date(ds)"),
        "to_timestamp(ds)",
        *(f"cast({c} as string)" for c in (*_WHOLE, "p", "da", "ts", "tn")),
        *("cast(ts as date)", "cast(tn as date)", "cast(da as timestamp)"),
        *("cast(da as timestamp_ntz)", "cast(ts as timestamp_ntz)"),
        *("cast(tn as timestamp)", "cast(ts as bigint)", "cast(i as timestamp)"),
        *("cast(l as timestamp)", "ds > '2024'", "da = '2024-02-29'"),
    ],
    "times": [
        *(f"{f}({c})" for f in ("year", "month", "day") for c in ("da", "ts", "tn")),
        *("quarter(da)", "dayofyear(ts)", "weekofyear(da)", "dayofweek(da)"),
        *("weekday(ts)", "hour(ts)", "minute(ts)", "second(ts)", "hour(tn)"),
        *("extract(DOW FROM da)", "date_part('week', ts)"),
        *(
            f"date_trunc('{u}', ts)"
            for u in ("year", "QUARTER", "mon", "week", "day", "hour", "minute")
        ),
        *("date_trunc('second', ts)", "date_trunc('millisecond', ts)"),
        *("date_trunc('microsecond', ts)", "date_trunc('nothing', ts)"),
        *(
            "trunc(da, 'year')",
            "trunc(da, 'MM')",
            "trunc(da, 'week')",
            "trunc(da, 'q')",
        ),
        *("trunc(ts, 'quarter')", "date_add(da, i % 1000)", "date_sub(da, 3)"),
        *("datediff(da, db)", "da + 1", "da - 1", "unix_date(da)"),
        *("unix_timestamp(ts)", "unix_timestamp(da)", "to_unix_timestamp(ts)"),
        *("from_unixtime(abs(l % 100000000000))", "from_unixtime(0)"),
        *("timestamp_seconds(l)", "timestamp_seconds(i)", "timestamp_millis(l)"),
        *("timestamp_micros(l)", "unix_seconds(ts)", "unix_millis(ts)"),
        *("unix_micros(ts)", "date_from_unix_date(i % 100000)"),
        *("ts + interval 1 hour", "ts - interval 90 minutes", "ts + interval 2 days"),
        *("ts > date'2020-01-01'", "ts between tt and timestamp'2030-01-01'"),
    ],
    "nested and rounded": [
        *("st.a", "st.b", "upper(st.b)", "st.c + 1", "size(ai)", "ai[0]", "ai[i]"),
        *("get(ai, 1)", "get(ai, i)", "element_at(ai, 1)", "element_at(ai, -1)"),
        *("try_element_at(ai, i)", "element_at(ai, i)", "cardinality(ai)"),
        *("named_struct('x', i, 'y', s)", "struct(i, s)", "array(i, j, k)"),
        *("if(i is null, array(), array(i))", "array(s)", "if(p, array(d), array())"),
        *("floor(d)", "ceil(d)", "floor(f)", "ceil(l)", "floor(i)", "ceiling(d)"),
        *("round(d)", "round(d, 2)", "round(d, -2)", "bround(d, 1)", "round(l, -3)"),
        *("round(i, -1)", "round(by, -2)", "round(i, 2)", "sqrt(d)"),
        *("xxhash64(i, s)", "xxhash64(l)", "xxhash64(d, f, p)", "xxhash64(ts, da)"),
        *("xxhash64(dc, de, bi)", "pmod(xxhash64(s), 100)", "xxhash64(i, 7L)"),
    ],
}
