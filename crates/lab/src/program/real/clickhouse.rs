//! ClickHouse, in one process (chDB): the same queries as for DuckDB. Its memory comes from jemalloc.

use super::Real;

/// Size: millions of rows.
pub const CLICKHOUSE: Real = Real {
    name: "clickhouse",
    about: "ClickHouse: a join and a group-by",
    runtime: ("python3", "apt install python3, or dnf install python3"),
    packages: &["chdb==3.6.0"],
    source: ("job.py", SOURCE),
    compile: &[],
    run: &["{runtime}", "{source}", "{size}", "{seed}"],
    size: (40, 1),
    bytes: (1 << 30, 100 << 20),
    unit_s: 0.5,
};

const SOURCE: &str = r#"
import sys
from chdb import session
n, seed = int(sys.argv[1]) * 1_000_000, int(sys.argv[2])
db = session.Session()
db.query("create database d")
db.query("create table d.orders engine = Memory as select number as id, intHash64(number + "
         f"{seed}) % 1000003 as customer, intHash64(number * 7 + {seed}) % 1000 as amount from numbers({n})")
db.query("create table d.customers engine = Memory as select number as customer, number % 97 as region from numbers(1000003)")
def rows(query):
    return [[int(x) for x in line.split(",")] for line in str(db.query(query, "CSV")).split()]
total = rows("select sum(amount) from d.orders")[0][0]
for _ in range(3):
    found = rows("select region, count(), sum(amount) from d.orders join d.customers using (customer) group by region order by region")
    assert len(found) == 97 and sum(r[1] for r in found) == n and sum(r[2] for r in found) == total
top = rows("select customer, sum(amount) s from d.orders group by customer order by s desc, customer limit 10")
assert len(top) == 10 and top[0][1] >= top[9][1]
per_id = rows("select count(), sum(c) from (select id, count() c from d.orders group by id)")
assert per_id == [[n, n]]
print("right")
"#;
