//! PostgreSQL: a backend that sorts and hashes in its own memory. Shared memory stays small: huge pages for it are `huge_pages = on`, not THP.

use super::Real;

/// Size: millions of rows.
pub const POSTGRESQL: Real = Real {
    name: "postgresql",
    about: "PostgreSQL: sorts and hashes of one backend",
    runtime: ("sh", "apt install postgresql, or dnf install postgresql-server"),
    packages: &[],
    source: ("job.sh", SOURCE),
    compile: &["sh", "{source}", "init", "{scratch}"],
    run: &["sh", "{source}", "{scratch}", "{size}"],
    size: (10, 1),
    bytes: (256 << 20, 200 << 20),
    unit_s: 2.5,
};

// A backend by itself, which reads its queries from its input. PostgreSQL does not run as root.
const SOURCE: &str = r#"
set -eu
bin=$(ls -d /usr/lib/postgresql/*/bin /usr/bin 2>/dev/null | while read -r d; do [ ! -x "$d/initdb" ] || echo "$d"; done | tail -n 1)
[ -n "$bin" ] || { echo "no PostgreSQL: apt install postgresql, or dnf install postgresql-server" >&2; exit 1; }
# An agent inside setpriv, which is root, would make the status page of this process number, and postgres could not open it.
user() {
    if [ "$(id -u)" = 0 ]; then
        LD_PRELOAD='' setpriv --reuid=postgres --regid=postgres --clear-groups env "LD_PRELOAD=${LD_PRELOAD:-}" "$@"
    else
        "$@"
    fi
}
cd /
if [ "$1" = init ]; then
    mkdir "$2/data"
    [ "$(id -u)" != 0 ] || { chmod o+x "$2"; chown postgres "$2/data"; }
    user "$bin/initdb" --no-sync --no-locale -A trust -D "$2/data" >/dev/null
    exit
fi
n=$(($2 * 1000000))
sum=$((n * (n + 1) / 2))
said=$(user "$bin/postgres" --single -D "$1/data" -c fsync=off -c shared_buffers=32MB -c work_mem=2GB \
    -c max_parallel_workers_per_gather=0 -c jit=off postgres <<SQL
select sum(v), count(*) from (select v, row_number() over (order by h) from (select hashint8(i) h, i v from generate_series(1, $n) i) s) q
select sum(s), count(*) from (select hashint8(i) % 3000017 k, sum(i) s from generate_series(1, $n) i group by 1) q
select sum(a.i), count(*) from generate_series(1, $n) a(i) join generate_series(1, $n) b(i) on a.i = b.i
SQL
)
[ "$(echo "$said" | grep -c "sum = \"$sum\"")" = 3 ] || { echo "$said"; exit 1; }
echo right
"#;
