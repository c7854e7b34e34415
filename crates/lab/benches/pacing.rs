//! What promoting costs the program while it happens, by stall budget, and what it gives once settled (issue "Manage a real
//! program", must hold 4). GUPS alone on its processor; Redis on the same one with its client on the other.
//!
//! `cargo bench -p mega --bench pacing -- [--gups-mib 12288] [--redis-keys 1500000] [--rounds 1] [--only gups|redis]`

mod bench;

use std::time::Duration;

use bench::{huge_mib, keep_warm, median, needs, option, show, Gups, Manager, PROGRAM_CPU};
use mega_lab::program::redis::keys::Keys;
use mega_lab::program::redis::load::{closed_loop, open_loop};
use mega_lab::program::redis::{Server, ServerOptions};
use mega_lab::timing::clock::now_ns;

const BUDGETS: [&str; 4] = ["1%", "5%", "20%", "100%"];
/// Requests per second for latency: half of what one connection can do here.
const RATE: f64 = 5_000.0;

fn manager_args(budget: &str) -> Vec<&str> {
    vec![
        "--policy",
        "ingens",
        "--interval",
        "1s",
        "--stall-budget",
        budget,
        "--cpu-budget",
        "100%",
    ]
}

fn main() {
    let only = std::env::args().skip_while(|arg| arg != "--only").nth(1);
    let rounds = option("rounds", 1);
    if only.as_deref() != Some("redis") {
        gups(option("gups-mib", 12 << 10), rounds);
    }
    if only.as_deref() != Some("gups") {
        redis(option("redis-keys", 1_500_000), rounds);
    }
}

fn gups(mib: u64, rounds: u64) {
    if !needs(mib + 3072) {
        return;
    }
    show(&format!(
        "GUPS {mib} MB, pinned; manager and memory warmer on the other processor"
    ));
    for round in 1..=rounds {
        let stock = Gups::start(mib, "advise").rate(8);
        show(&format!("round {round}: stock THP {:.2} M updates/s", stock / 1e6));
        for budget in BUDGETS {
            let gups = Gups::start(mib, "default");
            let before = gups.rate(6);
            let warm = keep_warm();
            let manager = Manager::start(gups.pid, &manager_args(budget));
            // Until all is huge, but not for ever: at 1 % that would be many minutes.
            let mut seen = Vec::new();
            let all_regions = mib / 2;
            let most_seconds = if budget == "1%" { 30 } else { 300 };
            for _ in 0..most_seconds / 3 {
                seen.extend(gups.observe(Duration::from_secs(3)));
                if huge_mib(gups.pid) / 2 >= all_regions {
                    break;
                }
            }
            // Settled and stock are measured without the warmer: it takes memory bandwidth.
            drop(warm);
            let full = huge_mib(gups.pid) / 2 >= all_regions;
            let settled = if full { gups.rate(6) } else { f64::NAN };
            let did = manager.stop();
            let during: Vec<f64> = seen
                .iter()
                .filter(|(t, _)| did.during(*t))
                .map(|(_, rate)| *rate)
                .collect();
            let lowest = during.iter().copied().fold(f64::INFINITY, f64::min);
            show(&format!(
                "  stall {budget:>4}: before {:.2} M/s, during/before {:.2} (lowest half second {:.2}), settled/before {:.2}, \
                 settled/stock {:.2}; {} promoted in {:.1} s, {:.1} ms per region; collapse {}",
                before / 1e6,
                median(&during) / before,
                lowest / before,
                settled / before,
                settled / stock,
                did.promoted,
                did.seconds(),
                did.ms_per_region(),
                did.collapse(),
            ));
        }
    }
}

fn redis(count: u64, rounds: u64) {
    let keys = Keys {
        count,
        value_bytes: 4096,
        seed: 1,
    };
    if Server::find().is_none() || !needs(count * 5 / 1024 + 3072) {
        show(&format!(
            "SKIPPED: Redis ({})",
            mega_lab::program::redis::HOW_TO_INSTALL
        ));
        return;
    }
    show(&format!(
        "Redis {count} keys of 4 KB, pinned; client, manager and memory warmer on the other processor"
    ));
    for round in 1..=rounds {
        for budget in BUDGETS {
            let server = Server::start(&ServerOptions {
                pin: Some(PROGRAM_CPU),
                ..ServerOptions::default()
            })
            .unwrap();
            let mut connection = server.connect().unwrap();
            keys.load(&mut connection).unwrap();
            let warm = keep_warm();
            let before = closed_loop(&mut connection, &keys, 16, 4.0, 2).unwrap().requests_per_s;
            let p99_before = open_loop(&mut connection, &keys, RATE, 4.0, 3).unwrap().latency.p99_ns;
            // Slices of a fifth of a second: unpaced promotion is over within two seconds.
            let manager = Manager::start(server.pid(), &manager_args(budget));
            let (mut throughput, mut latency) = (Vec::new(), Vec::new());
            let began = now_ns();
            for slice in 0.. {
                let t = now_ns();
                if slice % 2 == 0 {
                    let seen = closed_loop(&mut connection, &keys, 16, 0.2, slice).unwrap();
                    throughput.push((t, now_ns(), seen.requests_per_s));
                } else {
                    let seen = open_loop(&mut connection, &keys, RATE, 0.2, slice).unwrap();
                    latency.push((t, now_ns(), seen.latency.p99_ns as f64, seen.latency.max_ns as f64));
                }
                let enough = if budget == "100%" { 6 } else { 12 };
                if now_ns() - began > enough * 1_000_000_000 {
                    break;
                }
            }
            let did = manager.stop();
            drop(warm);
            let after = closed_loop(&mut connection, &keys, 16, 4.0, 4).unwrap().requests_per_s;
            let rates: Vec<f64> = throughput
                .iter()
                .filter(|(a, b, _)| did.during(*a) && did.during(*b))
                .map(|s| s.2)
                .collect();
            let inside = latency.iter().filter(|(a, b, ..)| did.during(*a) && did.during(*b));
            let (p99, max): (Vec<f64>, Vec<f64>) = inside.map(|s| (s.2, s.3)).unzip();
            show(&format!(
                "  round {round}, stall {budget:>4}: before {:.1} k/s, during/before {:.2} ({} slices), after/before {:.2}; GET p99 at \
                 {RATE:.0}/s before {:.3} ms, during {:.3} ms (median of {} slices; worst request {:.2} ms); {} promoted in {:.1} s, \
                 {:.1} ms per region; collapse {}",
                before / 1e3,
                median(&rates) / before,
                rates.len(),
                after / before,
                p99_before as f64 / 1e6,
                median(&p99) / 1e6,
                p99.len(),
                max.iter().copied().fold(0.0, f64::max) / 1e6,
                did.promoted,
                did.seconds(),
                did.ms_per_region(),
                did.collapse(),
            ));
            drop(connection);
            server.stop().unwrap();
        }
    }
}
