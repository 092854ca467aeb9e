"""Tables of all types whose values lie where functions go wrong."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from riverlock.core.types import schema_of

__all__ = ["COLUMNS", "typed_rows"]

COLUMNS = schema_of(
    "p boolean, q boolean, by tinyint, bz tinyint, sh smallint, si smallint, i int,"
    " j int, k int, l bigint, m bigint, n bigint, f float, g float, d double, e double,"
    " x double, s string, t string, u string, ns string, ds string, bi binary,"
    " da date, db date, ts timestamp, tt timestamp, tn timestamp_ntz,"
    " tm timestamp_ntz,"
    " dc decimal(10,2), dd decimal(10,2), de decimal(38,18), df decimal(5,0),"
    " dg decimal(20,4), ai array<int>, st struct<a:int,b:string,c:double>,"
    " ma map<string,int>"
)

_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_NAN = math.nan
_DOUBLES = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 1e-300, 5e-324, 1e300),
    *(_NAN, math.inf, -math.inf, 1.7976931348623157e308, 2.2250738585072014e-308),
    *(2.0**31, 2.0**31 - 1, -(2.0**31) - 1, 2.0**63, -(2.0**63), 9007199254740993.0),
    *(127.9, -128.9, 32767.5, 2147483647.5, -2147483648.9, 1e7, 1e-3, 123456.789),
)
_WORDS = (
    *("", " ", "a", "b", "ab", "abc", "ABC", "Abc abc", "  pad  ", "\ta\n", "x" * 40),
    *(
        "ä",
        "äöü",
        "ÄÖÜ",
        "ß",
        "straße",
        "中文",
        "🎉",
        "a🎉b",
        "e\u0301",
        "\x00",
        "a\x00b",
    ),
    *(
        "%",
        "_",
        "a%b",
        "a_b",
        "\\",
        "a\\%",
        "100%",
        "a,b,c",
        "key=value",
        "a.b",
        "null",
    ),
    *("aaa", "aXbXc", "Zz", "0", "i̇", "İstanbul", "ΑΣ", "ﬁ", "\u00a0x\u00a0", "\r\n"),
)
_NUMBERS = (
    *("0", "1", "-1", "+7", "42", " 12 ", "\t5\n", "007", "1.5", "-0", "-0.0", ".5"),
    *("5.", "1e3", "1E-2", "1e400", "-1e400", "nan", "NaN", "inf", "-Infinity", "+inf"),
    *("127", "128", "-129", "32768", "2147483647", "2147483648", "-2147483649", "1d"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "1f",
        "0x1p3",
    ),
    *("", " ", "abc", "1 2", "1_000", "--1", "+-1", "٣", "1e", "e1", ".", "+", "1L"),
    *("true", "false", "T", "f", "yes", "NO", "y", "n", " true ", "on", "TRUE", "truE"),
    *("99999999999999999999", "0.1234567890123456789", "123456789.987654321", "1,5"),
    *("0000000000000000000000001", "1.0", "100.", "-.5", "1e+5", "infinit", "1\x00"),
)
_MOMENTS = (
    *("2024-02-29", "2023-02-29", "1970-01-01", "0001-01-01", "9999-12-31", "2024-1-5"),
    *("2024", "2024-03", " 2024-03-01 ", "+2024-03-01", "-0001-01-01", "10000-01-01"),
    *("2024-03-31 02:30:00", "2024-11-03 01:30:00", "2024-03-01T12:34:56", "12:34:56"),
    *("2024-03-01 12:34:56.789", "2024-03-01 12:34:56.123456789", "2024-03-01 1:2:3"),
    *("2024-03-01T12:34:56Z", "2024-03-01 12:34:56+01:00", "2024-03-01 24:00:00"),
    *("2024-03-01 12:34:56 UTC", "2024-03-01 12:34:56 Europe/Berlin", "2024-13-01"),
    *("2024-03-01 12:60:00", "2024-03-01x", "2024-03-01 ", "x", "", "1582-10-10"),
    *("2024-03-01 12:34", "2024-03-01 12", "2024-03-01T", "99999-01-01", "20240301"),
    *("1969-12-31 23:59:59.999999", "1900-01-01 00:00:00", "2024-04-31", "0000-01-01"),
)


def _whole(bits: int, chance: random.Random) -> int:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    way = chance.random()
    if way < 0.25:
        return chance.choice([least, least + 1, most, most - 1])
    if way < 0.65:
        return chance.randint(-4, 12)
    return chance.randint(least, most)


def _real(chance: random.Random) -> float:
    way = chance.random()
    if way < 0.5:
        return chance.choice(_DOUBLES)
    if way < 0.75:
        return round(chance.uniform(-1000, 1000), chance.randint(0, 6))
    return chance.gauss(0, 1) * 10.0 ** chance.randint(-20, 20)


def _day(chance: random.Random) -> int:
    way = chance.random()
    if way < 0.15:
        return chance.choice([_FIRST_DAY, _LAST_DAY, 0, -1, 59, 60, -141_428, 11_016])
    if way < 0.6:
        return chance.randint(-30_000, 60_000)
    return chance.randint(_FIRST_DAY, _LAST_DAY)


def _instant(chance: random.Random) -> int:
    day_us = _day(chance) * _DAY_US
    way = chance.random()
    if way < 0.1:
        return day_us
    if way < 0.2:
        return min(day_us + _DAY_US - 1, 253_402_300_799_999_999)
    if way < 0.5:
        return day_us + chance.randint(0, 86_399) * 1_000_000
    return day_us + chance.randint(0, _DAY_US - 1)


def _decimal(precision: int, scale: int, chance: random.Random) -> Decimal:
    way = chance.random()
    most = 10**precision - 1
    if way < 0.2:
        unscaled = chance.choice([0, most, -most, 1, -1, 5, -5, 15, 25])
    elif way < 0.6:
        unscaled = chance.randint(-(10 ** min(precision, 6)), 10 ** min(precision, 6))
    else:
        unscaled = chance.randint(-most, most)
    if abs(unscaled) > most:
        unscaled = most
    sign, digits = (unscaled < 0), tuple(map(int, str(abs(unscaled))))
    return Decimal((int(sign), digits, -scale))


def _text(chance: random.Random) -> str:
    if chance.random() < 0.75:
        return chance.choice(_WORDS)
    return "".join(chance.choices("abAB xyz,.%_äß🎉中\\12", k=chance.randint(0, 12)))


def _value(name: str, kind: Any, chance: random.Random) -> Any:  # noqa: C901 - a table of types
    if chance.random() < 0.12:
        return None
    match kind.kind:
        case "boolean":
            return chance.random() < 0.5
        case "byte" | "short" | "int" | "long":
            bits = {"byte": 8, "short": 16, "int": 32, "long": 64}[kind.kind]
            return _whole(bits, chance)
        case "float" | "double":
            return _real(chance)
        case "string" if name == "ns":
            return chance.choice(_NUMBERS)
        case "string" if name == "ds":
            return chance.choice(_MOMENTS)
        case "string":
            return _text(chance)
        case "binary":
            return chance.choice([b"", b"a", b"abc", b"\x00", b"\xff\xfe"])
        case "date":
            return _day(chance)
        case "timestamp" | "timestamp_ntz":
            return _instant(chance)
        case "decimal":
            return _decimal(kind.precision, kind.scale, chance)
        case "array":
            return [
                _value("", kind.element, chance) for _ in range(chance.randint(0, 4))
            ]
        case "map":
            keys = chance.sample(["a", "b", "ä", "", "key"], chance.randint(0, 3))
            return [(k, _value("", kind.element, chance)) for k in keys]
        case "struct":
            return {f.name: _value("", f.type, chance) for f in kind.fields}
        case other:
            raise AssertionError(other)


def typed_rows(seed: int, size: int) -> pa.Table:
    """Return rows with a column of each kind."""
    chance = random.Random(seed)
    columns = {
        f.name: pa.array(
            [_value(f.name, f.type, chance) for _ in range(size)], f.type.to_arrow()
        )
        for f in COLUMNS.fields
    }
    return pa.table(columns, schema=COLUMNS.to_arrow())
