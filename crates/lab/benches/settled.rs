//! What managing costs once it has settled (must hold 3): processor time and memory of the manager, and the program's throughput
//! beside stock THP doing the same work. Policy `mega`, the paper's parameters, the default interval.
//!
//! `cargo bench -p mega --bench settled -- [--mib 8192] [--rounds 1]`

mod bench;

use std::time::{Duration, Instant};

use bench::{huge_mib, keep_warm, needs, option, show, Gups, Manager};

fn main() {
    let (mib, rounds) = (option("mib", 8 << 10), option("rounds", 1));
    if !needs(mib + 3072) {
        return;
    }
    for round in 1..=rounds {
        let stock = Gups::start(mib, "advise").rate(15);
        let base = Gups::start(mib, "default");
        let before = base.rate(10);
        let manager = Manager::start(base.pid, &[]);
        {
            let _warm = keep_warm();
            // Half a history of scans, then the promotions at the default budget: as long as that takes, but not for ever.
            let promoting = Instant::now();
            while huge_mib(base.pid) < mib && promoting.elapsed() < Duration::from_secs(60 + mib / 2 * 90 / 1000) {
                std::thread::sleep(Duration::from_secs(5));
            }
            show(&format!(
                "round {round}: {} of {mib} MB huge after {:.0} s",
                huge_mib(base.pid),
                promoting.elapsed().as_secs_f64()
            ));
        }
        let (cpu, _) = manager.cost();
        let settled = base.rate(40);
        let (cpu_after, rss) = manager.cost();
        let did = manager.stop();
        let alone = base.rate(15);
        show(&format!(
            "round {round}: {mib} MB: base {:.2} M/s, managed {:.2} ({:.2} of stock THP {:.2}), after the manager left {:.2}; \
             {} of {} regions promoted; manager settled: {:.2}% of one processor, {:.1} MB resident",
            before / 1e6,
            settled / 1e6,
            settled / stock,
            stock / 1e6,
            alone / 1e6,
            did.promoted,
            mib / 2,
            100.0 * (cpu_after - cpu).as_secs_f64() / 40.0,
            rss as f64 / 1e6,
        ));
    }
}
