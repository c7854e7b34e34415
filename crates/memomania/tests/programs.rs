//! Real programs, unmodified, with the results that they have without the library. Those that are not installed are said to be skipped.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{alone, output, program, settings, under, HugePages};

const LAYOUTS: [&str; 2] = ["4K", "2M:thp"];
const HUGETLB: &str = "4K+2M,2M";

/// Runs a command plainly and on every layout, and compares what it prints.
fn same_everywhere(make: &dyn Fn() -> Command) {
    same_on(make, false);
}

/// On 1 GB pages, too: a page for the heap and one for mappings, and base pages for what comes after.
fn same_on(make: &dyn Fn() -> Command, gigantic: bool) {
    let expected = output(&mut make()).stdout;
    let check = |layout: &str| {
        let mut command = make();
        under(&mut command, &settings(layout, layout, &[]).settings());
        assert!(output(&mut command).stdout == expected, "{layout}: another result");
    };
    LAYOUTS.into_iter().for_each(check);
    let _alone = alone();
    if let Some(_pages) = HugePages::reserve(64) {
        check(HUGETLB);
    }
    if !gigantic {
        return;
    }
    if let Some(_pages) = HugePages::gigantic(2) {
        check("1G+1G");
    }
}

fn shell(script: &'static str) -> impl Fn() -> Command {
    move || {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]);
        command
    }
}

#[test]
fn sort_sorts() {
    let script = "seq 1 300000 | awk '{print ($1 * 7919) % 1000003, $1}' | LC_ALL=C sort --parallel=2 -S 40M | cksum";
    same_everywhere(&shell(script));
}

#[test]
fn bash_forks_and_forks() {
    let script = "n=0; for i in $(seq 1 150); do n=$((n + $(echo $i))); (exit $((i % 7))) || true; done; echo $n";
    same_everywhere(&shell(script));
}

#[test]
fn python_passes_its_own_kind_of_tests() {
    let Some(_) = program("python3") else { return };
    let script = r#"
import array, ctypes, gc, hashlib, mmap, os, subprocess, sys, threading
m = mmap.mmap(-1, 5 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m[4096:4100] = b"abcd"
m.resize(9 << 20)
assert m[4096:4100] == b"abcd" and m[8 << 20] == 0
if os.fork() == 0:
    m[0:4] = b"mine"; os._exit(0)
os.wait()
assert m[0:4] == b"\0\0\0\0"
m.close()
class Node:
    def __init__(self, n): self.n, self.me = n, self
for _ in range(50000): Node(_)
gc.collect()
results = []
def work(seed):
    d = {str(i * seed): [i] * (i % 50) for i in range(20000)}
    results.append(sum(len(v) for v in d.values()))
threads = [threading.Thread(target=work, args=(s,)) for s in range(1, 5)]
[t.start() for t in threads]; [t.join() for t in threads]
a = array.array("d", range(300000)); a.extend(a); a = a[::-1]
print(sum(a), results, hashlib.sha256(bytes(a)).hexdigest())
for i in range(10): print(subprocess.run([sys.executable, "-c", f"print({i} * 'x')"], capture_output=True).stdout)
"#;
    let python = || {
        let mut command = Command::new("python3");
        command.args(["-c", script]);
        command
    };
    same_on(&python, true);
}

#[test]
fn sqlite_keeps_its_data() {
    let Some(_) = program("sqlite3") else { return };
    let script = "
        create table t (id integer primary key, name text, n integer); pragma cache_size = -20000;
        insert into t (name, n) with recursive c(x) as (select 1 union all select x + 1 from c where x < 60000)
          select printf('name %d', x * 7919 % 60013), x * 31 % 1009 from c;
        create index i on t (name); create index j on t (n);
        update t set n = n + 1 where id % 3 = 0; delete from t where id % 7 = 0;
        select count(*), sum(n), min(name), max(name) from t;
        select n, count(*) from t group by n order by 2 desc, 1 limit 20;
        select count(*) from t a join t b on a.name = b.name; pragma integrity_check;";
    same_everywhere(&|| {
        let mut command = Command::new("sqlite3");
        command.args([":memory:", script]);
        command
    });
}

#[test]
fn git_collects_garbage() {
    let Some(_) = program("git") else { return };
    let script = r#"
        export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
        d=$(mktemp -d); trap 'rm -rf $d' EXIT; cd $d; git init -q . 2> /dev/null; git config user.email a@b; git config user.name n
        for i in $(seq 1 8); do
          for j in $(seq 1 15); do seq $((i * j)) $((i * j + 300)) > f$j; done; git add .; git commit -qm "$i"
        done
        git -c gc.auto=0 gc -q --aggressive --prune=now; git fsck --full; git log --format=%H | cksum; git rev-list --objects --all | wc -l"#;
    same_everywhere(&shell(script));
}

#[test]
fn gcc_compiles() {
    let Some(_) = program("gcc") else { return };
    let script = r#"
        d=$(mktemp -d); trap 'rm -rf $d' EXIT; cd $d
        for i in $(seq 1 200); do echo "int f$i(int x) { int s = $i; while (x-- > 0) s = s * 31 + x * $i; return s; }"; done > a.c
        gcc -O2 -c a.c -o a.o; cksum < a.o"#;
    same_everywhere(&shell(script));
}

#[test]
fn java_node_and_go_run() {
    if program("node").is_some() {
        same_everywhere(&shell(
            "node -e 'let m = new Map(); for (let i = 0; i < 2e5; i++) m.set(\"k\" + i * 7919 % 100003, [i]); console.log(m.size, m.get(\"k5\"))'",
        ));
    }
    if program("java").is_some() {
        same_everywhere(&shell("java -Xmx128m -version 2>&1 | head -1"));
    }
}

/// One request of Redis's protocol, and its answer.
fn ask(stream: &mut TcpStream, words: &[&str]) -> String {
    let mut request = format!("*{}\r\n", words.len());
    words
        .iter()
        .for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![0; 1 << 16];
    let length = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[test]
fn redis_keeps_its_data_and_saves_it_from_a_fork() {
    let Some(redis) = program("redis-server") else { return };
    let check = |layout: &str| {
        let folder = tempfile::tempdir().unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        drop(socket);
        let mut command = Command::new(&redis);
        command.args([
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--appendonly",
            "no",
            "--loglevel",
            "warning",
            "--dir",
        ]);
        command.arg(folder.path()).stdout(Stdio::null());
        under(&mut command, &settings(layout, layout, &[]).settings());
        let mut server = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let mut stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < until, "{layout}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let value = |n: usize| format!("value {n} ").repeat(n % 60 + 1);
        for n in 0..4000 {
            assert_eq!(ask(&mut stream, &["SET", &format!("key{n}"), &value(n)]), "+OK\r\n");
        }
        assert!(ask(&mut stream, &["BGSAVE"]).starts_with('+'));
        for n in (0..4000).step_by(3) {
            assert_eq!(ask(&mut stream, &["DEL", &format!("key{n}")]), ":1\r\n");
        }
        for n in 0..4000 {
            let got = ask(&mut stream, &["GET", &format!("key{n}")]);
            let expected = match n % 3 {
                0 => "$-1\r\n".to_string(),
                _ => format!("${}\r\n{}\r\n", value(n).len(), value(n)),
            };
            assert_eq!(got, expected, "{layout}: key{n}");
        }
        while !ask(&mut stream, &["INFO", "persistence"]).contains("rdb_bgsave_in_progress:0") {
            assert!(Instant::now() < until + Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(
            ask(&mut stream, &["INFO", "persistence"]).contains("rdb_last_bgsave_status:ok"),
            "{layout}"
        );
        let _ = stream.write_all(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n");
        assert!(server.wait().unwrap().success());
        assert!(Path::new(folder.path()).join("dump.rdb").is_file(), "{layout}: saved");
    };
    LAYOUTS.into_iter().for_each(check);
    let _alone = alone();
    if let Some(_pages) = HugePages::reserve(48) {
        check(HUGETLB);
    }
}

#[test]
fn memory_has_the_pages_that_the_layout_says() {
    let Some(_) = program("python3") else { return };
    // By page tables (smaps), not by what the library says: 16 MB of a mapping and of the heap. Linux 6.18 may take a gigantic page for shared.
    let script = r#"
import ctypes, mmap
c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p
size = 16 << 20
p = c.malloc(ctypes.c_size_t(size)); ctypes.memset(ctypes.c_void_p(p), 1, size)
m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m[:] = bytes(size)
a = ctypes.addressof(ctypes.c_char.from_buffer(m))
def look(address):
    found, total = False, {"Rss": 0, "AnonHugePages": 0, "Private_Hugetlb": 0, "Shared_Hugetlb": 0}
    for line in open("/proc/self/smaps"):
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            start, end = (int(x, 16) for x in line.split()[0].split("-")); found = start < address + size and address < end
        elif found and line.split(":")[0] in total: total[line.split(":")[0]] += int(line.split()[1])
    return total
for x in (p, a):
    t = look(x); print("hugetlb" if t["Private_Hugetlb"] + t["Shared_Hugetlb"] >= 14 << 10 else "thp" if t["AnonHugePages"] >= 10 << 10 else "base" if t["AnonHugePages"] == 0 else t)
"#;
    let kinds = |layout: &str| {
        let mut command = Command::new("python3");
        under(command.args(["-c", script]), &settings(layout, layout, &[]).settings());
        String::from_utf8(output(&mut command).stdout).unwrap()
    };
    assert_eq!(kinds("4K"), "base\nbase\n");
    assert_eq!(kinds("2M:thp"), "thp\nthp\n");
    let _alone = alone();
    if let Some(_pages) = HugePages::reserve(80) {
        assert_eq!(kinds("2M"), "hugetlb\nhugetlb\n");
    }
    if let Some(_pages) = HugePages::gigantic(2) {
        assert_eq!(kinds("1G"), "hugetlb\nhugetlb\n");
    }
}
