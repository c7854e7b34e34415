//! A JVM with a heap that its garbage collector moves: a map of small objects, replaced again and again.

use super::Real;

/// Size: hundred thousands of entries.
pub const JVM: Real = Real {
    name: "jvm",
    about: "a JVM: a hash map of small objects, replaced again and again (G1, 2 GB)",
    runtime: ("java", "apt install default-jdk-headless, or dnf install java-devel"),
    packages: &[],
    source: ("Job.java", SOURCE),
    compile: &["javac", "-d", "{scratch}", "{source}"],
    run: &[
        "{runtime}",
        "-Xms512m",
        "-Xmx2g",
        "-XX:+UseG1GC",
        "-cp",
        "{scratch}",
        "Job",
        "{size}",
        "{seed}",
    ],
    size: (30, 1),
    bytes: (2560 << 20, 1 << 20),
    unit_s: 0.5,
};

const SOURCE: &str = r#"
import java.util.HashMap;

public class Job {
    public static void main(String[] args) {
        int entries = Integer.parseInt(args[0]) * 100_000;
        long draw = Long.parseLong(args[1]) | 1;
        HashMap<Integer, long[]> map = new HashMap<>();
        for (int round = 0; round < 6; round++) {
            for (int i = 0; i < entries; i++) {
                draw = draw * 6364136223846793005L + 1442695040888963407L;
                int key = round == 0 ? i : (int) Long.remainderUnsigned(draw >>> 1, entries);
                long[] value = new long[16];
                value[0] = key;
                value[15] = ~key;
                map.put(key, value);
            }
        }
        for (int i = 0; i < entries; i++) {
            long[] value = map.get(i);
            if (value == null || value[0] != i || value[15] != ~i) {
                throw new AssertionError("entry " + i);
            }
        }
        System.out.println("right");
    }
}
"#;
