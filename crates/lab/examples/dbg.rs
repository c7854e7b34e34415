use mega_core::control::Observer;
use mega_core::journal::Line;
use mega_lab::simulated::find;
use mega_sim::scenario::Scenario;
struct Say;
impl Observer for Say {
    fn event(&mut self, line: &Line) {
        let text = format!("{:?}", line);
        if std::env::var("ALL").is_ok() || text.contains("Compacted") || text.contains("Stock") || text.contains("Notice") {
            let text: String = text.chars().take(300).collect();
            println!("{text}");
        }
    }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let e = find(&a[1]).unwrap();
    let scale: f64 = a[2].parse().unwrap();
    let setup = e.setup(scale);
    let case = &setup.cases[a[3].parse::<usize>().unwrap()];
    let s = Scenario { system: a[4].parse().unwrap(), ..case.scenario.clone() };
    let o = s.run(&mut Say).unwrap();
    for p in &o.programs {
        println!("{} {} done {} failed {:?} start {} end {} rss {} huge {} faults {} fault_ns {} stall {}", p.name, p.program, p.done, p.failed, p.start_ns, p.end_ns, p.resident_bytes, p.huge_bytes, p.faults, p.fault_ns, p.stall_ns);
        println!("   {:?}", p.results.phases.iter().take(12).collect::<Vec<_>>());
    }
    println!("{:?}", o.counters);
    println!("{:?}", o.manager);
    for z in &o.zones { println!("{:?}", z); }
    let n = o.samples.len();
    for s in o.samples.iter().step_by((n / 40).max(1)) { println!("{:.1} rss {} huge {} free_blocks {} free {}", s.at_ns as f64 / 1e9, s.resident_bytes >> 20, s.huge_bytes >> 20, s.free_blocks, s.free_bytes >> 20); }
}
