use mega_core::control::{Control, Observer, Settings};
use mega_core::budget::Budget;
use mega_core::units::*;
use mega_core::journal::Line;
use mega_core::planner::{self, Seen};
use mega_lab::simulated::find;
use mega_sim::host::SimHost;
use mega_sim::machine::Machine;
use mega_sim::scenario::Scenario;
use mega_sim::workload::Progress;
struct Say;
impl Observer for Say { fn event(&mut self, line: &Line) { let t = format!("{:?}", line); if t.contains("Compacted") { println!("{}", &t[..t.len().min(250)]); } } }
fn main() {
    let e = find("mega-fig2").unwrap();
    let stop: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let setup = e.setup(1.0);
    let s = Scenario { system: "mega:compact=chosen/mega".parse().unwrap(), ..setup.cases[0].scenario.clone() };
    let mut machine = s.machine().unwrap();
    let id = machine.spawn("holes").unwrap();
    machine.run_as(id);
    let mut program = s.programs[0].run.build::<Machine>().unwrap();
    let w = machine.spawn("watcher").unwrap();
    let mut watcher = s.programs[1].run.build::<Machine>().unwrap();
    let mut at = 0u64;
    let drive = move |m: &mut Machine, until: u64| {
        while at < until {
            at = (at + 1_000_000).min(until);
            m.run_as(id);
            if m.clock_ns(id) < at && program.step(m, at).unwrap() == Progress::Done { return false; }
            m.run_as(w);
            if m.clock_ns(w) < at { if let Progress::Sleeps(t) = watcher.step(m, at).unwrap() { m.sleep_until(w, t); } }
        }
        true
    };
    let mut host = SimHost::new(machine, drive, stop * 1_000_000_000);
    host.compacting = s.system.compacting();
    let mut policy = s.system.scan_policy().unwrap();
    let settings = Settings { budget: Budget { stall: Share::FULL, cpu: Share::FULL, ..Budget::default() }, ..Settings::default() };
    let mut say = Say;
    let st = Control::new(&mut host, policy.as_mut(), settings, &mut say).with_stock(s.system.stock()).run();
    println!("{st:?}");
    let blocks = host.blocks();
    let zones = host.machine.physical().zones();
    println!("{zones:?}");
    let mut kinds = std::collections::BTreeMap::new();
    for b in &blocks { *kinds.entry((b.zone, format!("{:?}", b.kind()), b.mapped_pages().0, b.accessed().map(|a| a.as_millionths()/10000), b.pages(mega_core::block::PageKind::Unflagged).0, b.pages(mega_core::block::PageKind::Free).0)).or_insert(0) += 1; }
    for (k, n) in &kinds { if *n > 5 { println!("{k:?}: {n}"); } }
    let mut p = planner::by_name("mega").unwrap();
    let seen = Seen { blocks: &blocks, zones: &zones, total: Bytes(16<<30), asked: Blocks(0) };
    let plan = p.plan(&seen);
    for c in plan.iter().take(30) { let b = &blocks[c.hpfn.0 as usize]; println!("{:?} {:?} age {:?} mapped {:?} acc {:?} pages {:?}", c, b.kind(), b.age(), b.mapped_pages(), b.accessed(), (0..6).map(|_| 0).collect::<Vec<u8>>()); }
    println!("plan {} {:?}", plan.len(), plan.iter().take(5).collect::<Vec<_>>());
}
