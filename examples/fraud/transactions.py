"""The input: card payments, each a function of its number. Nothing of Riverlock here,
so that the flow and the independent check read the same rows and share nothing else.

Payments come every 40 ms, most of them with one of 4,000 cards at random. In each block
of 2,000 payments one card has been stolen and is used for about one payment in fifty.
One payment in a thousand is odd: not positive, or larger than any card allows.
"""

ROWS = 200_000
SEED = 7
LIMIT_CENTS = 500_000

_CARD = """
    if(pmod(xxhash64(id, seed, 2), 50) = 0,
       pmod(xxhash64(id div 2000, seed, 3), 4000),
       pmod(xxhash64(id, seed, 4), 4000))
"""
_CENTS = """
    case pmod(xxhash64(id, seed, 5), 2000)
        when 0 then -100 - pmod(xxhash64(id, seed, 6), 5000)
        when 1 then 500001 + pmod(xxhash64(id, seed, 6), 1000000)
        else 100 + pmod(xxhash64(id, seed, 6), 20000)
    end
"""

# SQL expressions over ``id`` (0, 1, 2, …) and ``seed``.
COLUMNS = {
    "tx": "id",
    "card": f"concat('card-', lpad({_CARD}, 4, '0'))",
    "merchant": "concat('shop-', lpad(pmod(xxhash64(id, seed, 7), 500), 3, '0'))",
    "cents": _CENTS,
    "at": "timestamp_millis(1767225600000 + id * 40)",
}
