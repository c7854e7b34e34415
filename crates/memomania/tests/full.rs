//! Real programs at full size, on base pages, transparent and hugetlb pages of 2 MB, a mixture, and 1 GB pages: the results must be those without the
//! library. Minutes and gigabytes: `make test-programs`, not a part of `make test`, which runs the same kinds of programs in small (programs.rs).

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use support::{alone, output, program, settings, under, HugePages};

/// What is reserved of each kind, where a layout asks for it.
struct Layout {
    text: &'static str,
    huge: u64,
    gigantic: u64,
}

/// Every layout. Of hugetlb as much as is stated: what comes after has base pages.
const LAYOUTS: [Layout; 5] = [
    Layout { text: "4K", huge: 0, gigantic: 0 },
    Layout { text: "2M:thp", huge: 0, gigantic: 0 },
    Layout { text: "2M", huge: 2000, gigantic: 0 },
    Layout { text: "4K+64M,2M:thp+256M,2M+512M,4K+1G,2M:thp", huge: 600, gigantic: 0 },
    Layout { text: "1G+1G,2M:thp", huge: 0, gigantic: 3 },
];

/// Runs a script plainly and on every layout, and compares what it prints. With `names` what is told apart, and the time each took.
fn same_everywhere(name: &str, mut make: impl FnMut() -> Command) {
    let _alone = alone();
    let begin = Instant::now();
    let expected = output(&mut make()).stdout;
    eprintln!("{name}: plain {:.1?}", begin.elapsed());
    assert!(!expected.is_empty(), "{name} says nothing");
    for Layout { text, huge, gigantic } in LAYOUTS {
        let huge = (huge > 0).then(|| HugePages::reserve(huge));
        let gigantic = (gigantic > 0).then(|| HugePages::gigantic(gigantic));
        if matches!(huge, Some(None)) || matches!(gigantic, Some(None)) {
            continue;
        }
        let mut command = make();
        under(&mut command, &settings(text, text, &[]).settings());
        let begin = Instant::now();
        let got = output(&mut command).stdout;
        eprintln!("{name}: {text} {:.1?}", begin.elapsed());
        assert!(
            got == expected,
            "{name} on {text}: another result\n{}\ninstead of\n{}",
            String::from_utf8_lossy(&got),
            String::from_utf8_lossy(&expected)
        );
    }
}

fn shell(script: &str, folder: &Path) -> Command {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).env("LC_ALL", "C");
    command.current_dir(folder);
    command
}

fn scripts(name: &str, script: &str) {
    let folder = tempfile::tempdir().unwrap();
    same_everywhere(name, || shell(script, folder.path()));
}

#[test]
#[ignore = "minutes, 2 GB on disk and 5 GB of memory: make test-programs"]
fn sort_sorts_two_gigabytes() {
    let folder = tempfile::tempdir().unwrap();
    let make = r#"seq 1 20000000 | awk '{ printf "%010d%090d\n", ($1 * 7919) % 20000003, $1 }' > lines; stat -c %s lines"#;
    let made = output(&mut shell(make, folder.path())).stdout;
    assert_eq!(String::from_utf8_lossy(&made).trim(), "2020000000");
    same_everywhere("sort", || shell("sort --parallel=2 -S 4G -T . lines | cksum", folder.path()));
}

#[test]
#[ignore = "a minute: make test-programs"]
fn bash_forks_ten_thousand_times() {
    let script = "n=0; for i in $(seq 1 5000); do n=$((n + $(echo $i))); (exit $((i % 7))) || n=$((n + $?)); done; echo $n";
    scripts("bash", script);
}

#[test]
#[ignore = "minutes: make test-programs"]
fn python_passes_its_own_tests_of_memory() {
    let known = Command::new("python3").args(["-c", "import test.test_mmap, test.test_gc"]).output();
    if !known.is_ok_and(|known| known.status.success()) {
        return eprintln!("SKIPPED: python3 or its test suite is not installed");
    }
    // Each test's name and result; its order is fixed, its time is not printed.
    // Each test's name and result.
    let script = r#"for t in test_mmap test_array test_threading test_subprocess test_gc; do
          { python3 -m unittest -v test.$t 2>&1 < /dev/null || true; } | { grep -oE '^test.* \.\.\. (ok|FAIL|ERROR|skipped)' || true; } | sort
        done > all; grep -c ' ok$' all; grep -v ' ok$' all || true; cksum < all"#;
    scripts("python", script);
}

#[test]
#[ignore = "minutes: make test-programs"]
fn compilers_compile_large_files() {
    if program("gcc").is_some() {
        scripts(
            "gcc",
            r#"for i in $(seq 1 12000); do echo "int f$i(int x) { int s = $i; while (x-- > 0) s = s * 31 + x * $i; return s; }"; done > a.c
            gcc -O1 -c a.c -o a.o; cksum < a.o"#,
        );
    }
    if program("rustc").is_some() {
        scripts(
            "rustc",
            r#"cat > a.rs <<'END'
use std::collections::HashMap;
fn main() {
    let all: Vec<_> = (0..4u64).map(|t| std::thread::spawn(move || {
        let mut map: HashMap<u64, Vec<u64>> = HashMap::new();
        for i in 0..400_000 { map.entry(i * 7919 % 50_021).or_default().push(i ^ t); }
        map.values().map(|v| v.iter().fold(0u64, |a, b| a.wrapping_mul(31).wrapping_add(*b))).fold(0, u64::wrapping_add)
    })).collect();
    println!("{:?}", all.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>());
}
END
            rustc -O a.rs -o a; ./a"#,
        );
    }
}

#[test]
#[ignore = "minutes: make test-programs"]
fn programs_with_allocators_of_their_own_run() {
    if program("node").is_some() {
        scripts(
            "node",
            "node -e 'let m = new Map(); for (let i = 0; i < 3e6; i++) m.set(\"k\" + i * 7919 % 1000003, [i, \"v\" + i]); \
             let b = Buffer.alloc(256 << 20, 7); console.log(m.size, m.get(\"k5\"), b.reduce((a, x) => a + x, 0))'",
        );
    }
    if program("java").is_some() && program("javac").is_some() {
        scripts(
            "java",
            r#"cat > Main.java <<'END'
import java.util.*;
public class Main {
    public static void main(String[] a) throws Exception {
        List<Thread> all = new ArrayList<>();
        long[] sums = new long[4];
        for (int t = 0; t < 4; t++) {
            int own = t;
            Thread thread = new Thread(() -> {
                Map<Integer, String> map = new HashMap<>();
                for (int i = 0; i < 1000000; i++) map.put(i * 7919 % 300007, "v" + (i ^ own));
                for (String s : map.values()) sums[own] += s.hashCode();
            });
            all.add(thread);
            thread.start();
        }
        for (Thread thread : all) thread.join();
        java.nio.ByteBuffer direct = java.nio.ByteBuffer.allocateDirect(128 << 20);
        for (int i = 0; i < direct.capacity(); i += 4096) direct.put(i, (byte) 3);
        long n = 0;
        for (int i = 0; i < direct.capacity(); i += 4096) n += direct.get(i);
        System.out.println(Arrays.toString(sums) + " " + n);
    }
}
END
            javac Main.java; java -Xmx1g Main"#,
        );
    }
    if program("go").is_some() {
        scripts(
            "go",
            r#"export GOCACHE=$PWD/cache GOFLAGS=-mod=mod GO111MODULE=off HOME=$PWD
            cat > main.go <<'END'
package main

import ("fmt"; "sync")

func main() {
	var wait sync.WaitGroup
	sums := make([]uint64, 4)
	for t := range sums {
		wait.Add(1)
		go func(t int) {
			defer wait.Done()
			m := map[int][]int{}
			for i := 0; i < 1000000; i++ { k := i * 7919 % 100003; m[k] = append(m[k], i ^ t) }
			for _, v := range m { for n, x := range v { sums[t] += uint64(x) * uint64(n + 1) } }
		}(t)
	}
	wait.Wait()
	fmt.Println(sums)
}
END
            go build -o main main.go; ./main"#,
        );
    }
}

#[test]
#[ignore = "a minute: make test-programs"]
fn databases_and_repositories_keep_their_data() {
    if program("sqlite3").is_some() {
        scripts(
            "sqlite3",
            r#"sqlite3 a.db "
            pragma journal_mode = off; pragma cache_size = -200000; drop table if exists t;
            create table t (id integer primary key, name text, n integer);
            insert into t (name, n) with recursive c(x) as (select 1 union all select x + 1 from c where x < 1500000)
              select printf('name %d', x * 7919 % 1500007), x * 31 % 1009 from c;
            create index i on t (name); create index j on t (n);
            update t set n = n + 1 where id % 3 = 0; delete from t where id % 7 = 0;
            select count(*), sum(n), min(name), max(name) from t; select n, count(*) from t group by n order by 2 desc, 1 limit 20;
            select count(*) from t a join t b on a.name = b.name; pragma integrity_check;""#,
        );
    }
    if program("git").is_some() {
        scripts(
            "git",
            r#"export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
            rm -rf r; git init -q r 2> /dev/null; cd r; git config user.email a@b; git config user.name n
            for i in $(seq 1 40); do
              for j in $(seq 1 60); do seq $((i * j)) $((i * j + 3000)) > f$j; done; git add .; git commit -qm "$i"
            done
            git -c gc.auto=0 gc -q --aggressive --prune=now; git fsck --full; git log --format=%H | cksum; git rev-list --objects --all | wc -l"#,
        );
    }
}
