//! Node: a map of objects and buffers, replaced again and again.

use super::Real;

/// Size: hundred thousands of entries.
pub const NODE: Real = Real {
    name: "node",
    about: "Node: a map of objects and buffers, replaced again and again",
    runtime: ("node", "apt install nodejs, or dnf install nodejs"),
    packages: &[],
    source: ("job.js", SOURCE),
    compile: &[],
    run: &["{runtime}", "--max-old-space-size=4096", "{source}", "{size}", "{seed}"],
    size: (15, 1),
    bytes: (512 << 20, 96 << 20),
    unit_s: 1.0,
};

const SOURCE: &str = r#"
const entries = Number(process.argv[2]) * 100000;
let draw = Number(process.argv[3]) | 1;
const map = new Map();
for (let round = 0; round < 4; round++) {
  for (let i = 0; i < entries; i++) {
    draw = (Math.imul(draw, 1664525) + 1013904223) | 0;
    const key = round === 0 ? i : (draw >>> 0) % entries;
    map.set(key, { key, name: `entry ${key}`, value: new Float64Array(8).fill(key) });
  }
}
for (let i = 0; i < entries; i++) {
  const entry = map.get(i);
  if (entry.key !== i || entry.value[7] !== i || entry.name !== `entry ${i}`) {
    throw new Error(`entry ${i}`);
  }
}
console.log("right");
"#;
