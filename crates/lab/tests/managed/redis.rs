//! Must hold 7: a real Redis keeps every value through promotion, a snapshot, the deletion of most keys, and demotion; huge pages
//! cost it no memory; and what the snapshot's fork splits comes back.
//!
//! The same sequence on base pages, under `mega` and under `ingens`. Scans are 1 s apart and the budgets four times the default, so that
//! a minute here shows what five show with the defaults.

use std::time::{Duration, Instant};

use mega_lab::prepare::pool::{PrefaultedPool, Takers};
use mega_lab::program::redis::keys::{is_deleted, Keys, Verified};
use mega_lab::program::redis::load::closed_loop;
use mega_lab::program::redis::{bgsave, Connection, Server, ServerOptions, HOW_TO_INSTALL};

use crate::support::{alone, can_run, huge_bytes, rss_bytes, wait_until, waste_bytes, Managed, Manager};

/// Everything that is stored: 2 GB. MEGA_REDIS_KEYS=1500000 has it be as much as in the figures of README.
fn keys() -> Keys {
    let count = std::env::var("MEGA_REDIS_KEYS").map_or(500_000, |text| text.parse().unwrap());
    Keys {
        count,
        value_bytes: 4096,
        seed: 7,
    }
}
/// The keys that are in use all the time, side by side in memory: 350 MB.
fn hot() -> Keys {
    Keys {
        count: 75_000,
        ..keys()
    }
}
const DELETED: (f64, u64) = (0.7, 3);

/// What one stage left.
#[derive(Debug, Clone, Copy)]
struct Stage {
    rss: u64,
    huge: u64,
}

/// One variant: a Redis, and what manages it.
struct Run {
    name: &'static str,
    server: Server,
    connection: Connection,
    manager: Option<Manager>,
    began: Instant,
}

impl Run {
    fn start(name: &'static str, policy: Option<&str>) -> Self {
        let options = ServerOptions {
            // Base pages: THP disabled for the process.
            disable_thp: policy.is_none(),
            // The child sleeps at every fifth key or so: it outlives the writes beside it, however fast the disk is.
            extra: "--rdbcompression no --rdbchecksum no --rdb-key-save-delay -5"
                .split(' ')
                .map(Into::into)
                .collect(),
            ..ServerOptions::default()
        };
        let server = Server::start(&options).unwrap();
        let connection = server.connect().unwrap();
        let manager = policy.map(|policy| {
            let pid = server.pid().to_string();
            let budgets = ["--stall-budget", "20%", "--cpu-budget", "40%"];
            Manager::start(&[&["--policy", policy, "--interval", "1s"], &budgets[..], &[&pid]].concat())
        });
        Self {
            name,
            server,
            connection,
            manager,
            began: Instant::now(),
        }
    }

    fn huge(&self) -> u64 {
        huge_bytes(self.server.pid())
    }

    /// Says where things stand.
    fn stage(&self, what: &str) -> Stage {
        let pid = self.server.pid();
        let stage = Stage {
            rss: rss_bytes(pid),
            huge: huge_bytes(pid),
        };
        let (promoted, demoted) = self.manager.as_ref().map_or((0, 0), Manager::done_so_far);
        eprintln!(
            "  {:<6} {:>4.0} s  {what:<28} RSS {:>5} MB  huge {:>5} MB  wasted {:>3} MB  promoted {promoted:>5}  demoted {demoted:>5}",
            self.name,
            self.began.elapsed().as_secs_f64(),
            stage.rss >> 20,
            stage.huge >> 20,
            waste_bytes(pid) >> 20,
        );
        stage
    }

    fn command(&mut self, words: &[&str]) {
        let mut packed = format!("*{}\r\n", words.len());
        words
            .iter()
            .for_each(|word| packed += &format!("${}\r\n{word}\r\n", word.len()));
        self.connection.send_packed_command(packed.as_bytes()).unwrap();
        self.connection.recv_response().unwrap();
    }

    /// Sets every `step`th key to what it is.
    fn write_again(&mut self, step: u64) {
        for i in (0..keys().count).step_by(step as usize) {
            let (name, value) = (Keys::name(i), keys().value(i));
            let mut packed =
                format!("*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${}\r\n", name.len(), value.len()).into_bytes();
            packed.extend(&value);
            packed.extend(b"\r\n");
            self.connection.send_packed_command(&packed).unwrap();
            self.connection.recv_response().unwrap();
        }
    }

    /// Keeps the hot keys in use.
    fn serve(&mut self, seconds: f64) {
        let seen = closed_loop(&mut self.connection, &hot(), 16, seconds, 5).unwrap();
        assert_eq!(seen.missing_share, 0.0);
    }

    /// Snapshots while keys are written; the stage is from the end of the writes.
    fn snapshot(&mut self) -> Stage {
        let mut other = self.server.connect().unwrap();
        let saving = std::thread::spawn(move || bgsave(&mut other).unwrap());
        std::thread::sleep(Duration::from_millis(500));
        self.write_again(100);
        assert!(!saving.is_finished(), "the snapshot was over before the writes were");
        let during = self.stage("while the child saves");
        let took = Duration::from_nanos(saving.join().unwrap());
        eprintln!("  {:<6} the snapshot took {:.1} s", self.name, took.as_secs_f64());
        std::fs::remove_file(self.server.directory().join("dump.rdb")).unwrap();
        during
    }

    /// Deletes, and checks every key; gives the stage after what is free went back to the kernel.
    fn delete_and_verify(&mut self) -> Stage {
        let (share, seed) = DELETED;
        let deleted = keys().delete_random(&mut self.connection, share, seed).unwrap();
        self.stage("70 % deleted");
        let verified = keys()
            .verify(&mut self.connection, |i| !is_deleted(i, share, seed))
            .unwrap();
        let expected = Verified {
            present: keys().count - deleted,
            absent: deleted,
        };
        assert_eq!(verified, expected);
        self.command(&["MEMORY", "PURGE"]);
        std::thread::sleep(Duration::from_secs(8));
        self.stage("all verified, purged")
    }

    fn end(self) -> Option<Managed> {
        drop(self.connection);
        let managed = self.manager.map(Manager::stop);
        assert!(self.server.stop().unwrap().success());
        if let Some(managed) = &managed {
            eprintln!("  {:<6} {}", self.name, managed.summary);
            assert!(managed.status.success());
        }
        managed
    }
}

/// Fills, serves, snapshots, deletes, verifies.
fn base_pages() -> Stage {
    let mut run = Run::start("base", None);
    keys().load(&mut run.connection).unwrap();
    run.stage("filled");
    run.snapshot();
    let end = run.delete_and_verify();
    run.end();
    end
}

fn under_mega(base: Stage) {
    let mut run = Run::start("mega", Some("mega"));
    keys().load(&mut run.connection).unwrap();
    run.stage("filled");
    // How long it takes is the machine's affair, as under Ingens.
    run.serve(15.0);
    for _ in 0..20 {
        if run.huge() >= 200 << 20 {
            break;
        }
        run.serve(5.0);
    }
    let served = run.stage("hot keys served");
    run.snapshot();
    run.serve(3.0);
    run.stage("3 s after the snapshot");
    let end = run.delete_and_verify();
    run.end();
    assert!(
        served.huge >= 200 << 20,
        "what is hot is promoted: {} MB",
        served.huge >> 20
    );
    assert!(
        end.rss * 20 <= base.rss * 21,
        "{} MB, {} MB on base pages",
        end.rss >> 20,
        base.rss >> 20
    );
}

fn under_ingens() {
    let mut run = Run::start("ingens", Some("ingens"));
    keys().load(&mut run.connection).unwrap();
    run.stage("filled");
    // How long it takes is the machine's affair: a collapse that has to compact takes ten times as long, and the budget paces it.
    wait_until(Duration::from_secs(240), || {
        run.huge() >= rss_bytes(run.server.pid()) / 100 * 95
    });
    let before = run.stage("promoted");
    let during = run.snapshot();
    let ended = Instant::now();
    let back = wait_until(Duration::from_secs(240), || run.huge() >= before.huge / 100 * 95);
    let after = run.stage("after the snapshot");
    eprintln!("  ingens {:.1} s after the child's end", ended.elapsed().as_secs_f64());
    run.delete_and_verify();
    run.end();
    assert!(
        before.huge * 100 >= before.rss * 90,
        "{} of {} MB huge",
        before.huge >> 20,
        before.rss >> 20
    );
    assert!(
        during.huge < before.huge / 2,
        "writes beside the child split: {} MB",
        during.huge >> 20
    );
    assert!(back, "{} of {} MB came back", after.huge >> 20, before.huge >> 20);
}

#[test]
fn redis_keeps_its_data_and_no_waste_through_a_snapshot_and_a_deletion() {
    let _alone = alone();
    if Server::find().is_none() {
        eprintln!("SKIPPED: {HOW_TO_INSTALL}");
        return;
    }
    if !can_run(14 * 1024) {
        return;
    }
    // Collapsing into memory that the host of a virtual machine does not back takes ten times as long.
    let _warm = PrefaultedPool::start(2 << 30, Takers::default()).unwrap();
    let base = base_pages();
    under_mega(base);
    under_ingens();
}
