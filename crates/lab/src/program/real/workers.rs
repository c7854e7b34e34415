//! Python with forked workers, as web servers preload an application and fork: reference counts copy what is only read.

use super::Real;

/// Size: hundred thousands of objects in the parent.
pub const WORKERS: Real = Real {
    name: "workers",
    about: "Python: four forked workers that use their parent's objects",
    runtime: ("python3", "apt install python3, or dnf install python3"),
    packages: &[],
    source: ("job.py", SOURCE),
    compile: &[],
    run: &["{runtime}", "{source}", "{size}", "{seed}"],
    size: (20, 1),
    bytes: (256 << 20, 128 << 20),
    unit_s: 1.0,
};

const SOURCE: &str = r#"
import os
import random
import sys
n, seed = int(sys.argv[1]) * 100_000, int(sys.argv[2])
objects = [{"id": i, "name": f"object {i}"} for i in range(n)]
workers = []
for worker in range(4):
    pid = os.fork()
    if pid == 0:
        draw = random.Random(seed + worker)
        for _ in range(n):
            i = draw.randrange(n)
            if objects[i]["id"] != i or objects[i]["name"][7:] != str(i):
                os._exit(3)
        os._exit(0)
    workers.append(pid)
for pid in workers:
    assert os.waitpid(pid, 0)[1] == 0
assert all(one["id"] == i for i, one in enumerate(objects))
print("right")
"#;
