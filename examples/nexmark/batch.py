"""What the queries should give, in plain Spark SQL over all events at once.

Nothing of Riverlock takes part: no epochs, no state, no watermark.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The best bid of each auction that got one while it was open.
_WINNERS = """
    select a.id, a.seller, a.category, a.expires as at, max(b.price) as price
    from auction a join bid b on a.id = b.auction and b.at between a.at and a.expires
    group by all
"""

_STATISTICS = """
    count(*) as total_bids,
    count(*) filter (where price < 10000) as rank1_bids,
    count(*) filter (where price >= 10000 and price < 1000000) as rank2_bids,
    count(*) filter (where price >= 1000000) as rank3_bids,
    count(distinct bidder) as total_bidders,
    count(distinct bidder) filter (where price < 10000) as rank1_bidders,
    count(distinct bidder) filter (where price >= 10000 and price < 1000000)
        as rank2_bidders,
    count(distinct bidder) filter (where price >= 1000000) as rank3_bidders,
    count(distinct auction) as total_auctions,
    count(distinct auction) filter (where price < 10000) as rank1_auctions,
    count(distinct auction) filter (where price >= 10000 and price < 1000000)
        as rank2_auctions,
    count(distinct auction) filter (where price >= 1000000) as rank3_auctions
"""

QUERIES = {
    "q0": "select auction, bidder, price, channel, url, at, extra from bid",
    "q1": "select auction, bidder, 0.908 * price as price, at, extra from bid",
    "q2": "select auction, price from bid where mod(auction, 123) = 0",
    "q3": """
        select p.name, p.city, p.state, a.id as auction
        from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    "q4": "select category, avg(price) as price from winner group by category",
    "q5": """
        select auction, bids, ends
        from (select *, max(bids) over (partition by ends) as most
              from (select auction, window.end as ends, count(*) as bids
                    from bid
                    group by auction, window(at, '10 seconds', '2 seconds')))
        where bids = most
    """,
    "q6": """
        select seller, at, avg(price) over (
            partition by seller order by at, price
            rows between 9 preceding and current row) as price
        from winner
    """,
    "q7": """
        select b.price, h.ends, b.auction, b.bidder, b.at
        from (select max(price) as price, window.start as starts, window.end as ends
              from bid group by window(at, '10 seconds')) h
        join bid b on b.price = h.price and b.at >= h.starts and b.at < h.ends
    """,
    "q8": """
        select distinct p.id, p.name, p.starts as period
        from (select *, window(at, '10 seconds').start as starts from person) p
        join (select *, window(at, '10 seconds').start as starts from auction) a
        on p.id = a.seller and p.starts = a.starts
    """,
    "q11": """
        select bidder, session_window.start as window_start,
               session_window.end as window_end, count(*) as count
        from bid group by bidder, session_window(at, '10 seconds')
    """,
    # Nobody knows when the flow will run; over all periods together it must be this.
    "q12": "select bidder, count(*) as bids from bid group by bidder",
    "q13": """
        select auction, bidder, price, at, mod(auction, 10000) as key,
               concat('value-', mod(auction, 10000)) as value
        from bid where mod(auction, 10000) between 0 and 9999
    """,
    "q15": f"select day, {_STATISTICS} from bid_of_day group by 1",  # noqa: S608
    "q16": f"select channel, day, {_STATISTICS} from bid_of_day group by 1, 2",  # noqa: S608
    "q17": """
        select auction, day, count(*) as total,
               count(*) filter (where price < 10000) as rank1,
               count(*) filter (where price >= 10000 and price < 1000000) as rank2,
               count(*) filter (where price >= 1000000) as rank3,
               min(price) as lowest, max(price) as highest, avg(price) as average,
               sum(price) as sum
        from bid_of_day group by 1, 2
    """,
    "q18": """
        select bidder, auction,
               struct(price, channel, url, at, extra) as bid
        from (select *, row_number() over (
                  partition by bidder, auction order by at desc) as newest
              from bid)
        where newest = 1
    """,
    "q19": """
        select auction, bidder, price, channel, url, at, extra, rank
        from (select *, row_number() over (
                  partition by auction order by price desc, place) as rank
              from bid)
        where rank <= 10
    """,
    "q20": """
        select b.auction, b.bidder, b.price, b.channel, b.url, b.at, b.extra, a.item,
               a.description, a.initial, a.reserve, a.at as opened, a.expires, a.seller,
               a.category, a.extra as auction_extra
        from bid b join auction a on b.auction = a.id
        where a.category = 10
    """,
    "q22": """
        select auction, bidder, price, channel, split_part(url, '/', 4) as dir1,
               split_part(url, '/', 5) as dir2, split_part(url, '/', 6) as dir3
        from bid
    """,
    "q23": """
        select b.bidder, b.price, b.channel, b.at as bid_at, p.name, p.email, p.city,
               p.state, a.id as sells, a.item, a.at as opened
        from bid b
        join person p on p.id = b.bidder
        join auction a on a.seller = b.bidder
    """,
}


def expected(spark: "SparkSession", name: str) -> "DataFrame":
    """Return what a query should give of the tables person, auction and bid."""
    spark.sql(_WINNERS).createOrReplaceTempView("winner")
    days = "select *, date_format(at, 'yyyy-MM-dd') as day from bid"
    spark.sql(days).createOrReplaceTempView("bid_of_day")
    return spark.sql(QUERIES[name])
