//! DuckDB: two tables of its own making, a join and a group-by. Its allocator gives memory back and takes it again.

use super::Real;

/// Size: millions of rows.
pub const DUCKDB: Real = Real {
    name: "duckdb",
    about: "DuckDB: a join and a group-by",
    runtime: ("python3", "apt install python3, or dnf install python3"),
    packages: &["duckdb==1.1.3"],
    source: ("job.py", SOURCE),
    compile: &[],
    run: &["{runtime}", "{source}", "{size}", "{seed}", "{scratch}"],
    size: (40, 1),
    bytes: (512 << 20, 100 << 20),
    unit_s: 0.3,
};

const SOURCE: &str = r#"
import sys
import duckdb
n, seed, scratch = int(sys.argv[1]) * 1_000_000, int(sys.argv[2]), sys.argv[3]
db = duckdb.connect(":memory:")
db.execute(f"set temp_directory = '{scratch}'")
db.execute(f"create table orders as select i as id, (hash(i + {seed}) % 1000003) as customer, "
           f"(hash(i * 7 + {seed}) % 1000) as amount from range({n}) t(i)")
db.execute("create table customers as select i as customer, i % 97 as region from range(1000003) t(i)")
total = db.execute("select sum(amount) from orders").fetchone()[0]
for _ in range(3):
    rows = db.execute("select region, count(*), sum(amount) from orders join customers using (customer) "
                      "group by region order by region").fetchall()
    assert len(rows) == 97 and sum(r[1] for r in rows) == n and sum(r[2] for r in rows) == total
top = db.execute("select customer, sum(amount) s from orders group by customer order by s desc, customer limit 10").fetchall()
assert len(top) == 10 and top[0][1] >= top[9][1]
print("right")
"#;
