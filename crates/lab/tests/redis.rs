//! The Redis driver against a real redis-server; skipped, with the reason, where there is none.

use std::time::{Duration, Instant};

use mega_lab::program::redis::keys::{is_deleted, Keys, Verified};
use mega_lab::program::redis::{bgsave, load, memory, Server, ServerOptions, HOW_TO_INSTALL};

fn server(options: &ServerOptions) -> Option<Server> {
    if Server::find().is_none() {
        eprintln!("skipped: {HOW_TO_INSTALL}");
        return None;
    }
    Some(Server::start(options).expect("redis-server starts"))
}

fn status_of(pid: i32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|l| l.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).unwrap_or_default().to_string()
}

#[test]
fn keys_survive_a_snapshot_and_a_random_share_can_be_deleted() {
    let Some(server) = server(&ServerOptions::default()) else {
        return;
    };
    let mut c = server.connect().unwrap();
    let keys = Keys {
        count: 5_000,
        value_bytes: 4096,
        seed: 9,
    };
    keys.load(&mut c).unwrap();
    assert_eq!(
        keys.verify(&mut c, |_| true).unwrap(),
        Verified {
            present: 5_000,
            absent: 0
        }
    );
    // Redis takes note of its memory ten times a second.
    let end = Instant::now() + Duration::from_secs(20);
    let mut seen = memory(&mut c).unwrap();
    while (seen.0 < 20_000_000 || seen.1 < 20_000_000) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        seen = memory(&mut c).unwrap();
    }
    assert!(seen.0 > 20_000_000 && seen.1 > 20_000_000, "{seen:?}");
    assert!(bgsave(&mut c).unwrap() > 0);
    assert!(server.directory().join("dump.rdb").is_file());
    let deleted = keys.delete_random(&mut c, 0.7, 2).unwrap();
    let v = keys.verify(&mut c, |i| !is_deleted(i, 0.7, 2)).unwrap();
    assert_eq!(
        v,
        Verified {
            present: 5_000 - deleted,
            absent: deleted
        }
    );
    assert!(keys
        .verify(&mut c, |_| true)
        .unwrap_err()
        .to_string()
        .contains("is missing"));
    assert!(server.stop().unwrap().success());
}

#[test]
fn a_wrong_value_is_found() {
    let Some(server) = server(&ServerOptions::default()) else {
        return;
    };
    let mut c = server.connect().unwrap();
    let keys = Keys {
        count: 10,
        value_bytes: 100,
        seed: 9,
    };
    keys.load(&mut c).unwrap();
    let e = Keys { seed: 8, ..keys }.verify(&mut c, |_| true).unwrap_err();
    assert!(e.to_string().contains("key:0 differs at byte Some(0)"), "{e}");
    assert!(load::closed_loop(&mut c, &Keys { seed: 8, ..keys }, 1, 0.1, 1).is_err());
}

#[test]
fn an_open_loop_keeps_its_rate_and_a_stall_is_charged_to_every_request_that_waited() {
    let Some(server) = server(&ServerOptions::default()) else {
        return;
    };
    let mut c = server.connect().unwrap();
    let keys = Keys {
        count: 1_000,
        value_bytes: 4096,
        seed: 9,
    };
    keys.load(&mut c).unwrap();
    let quiet = load::open_loop(&mut c, &keys, 2_000.0, 1.0, 1).unwrap();
    assert_eq!(quiet.requests, 2_000);
    assert!((1_500.0..2_100.0).contains(&quiet.requests_per_s), "{quiet:?}");
    let mut other = server.connect().unwrap();
    let stall = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        // DEBUG may be disabled: busy work in a script stalls the server as well.
        let script = "local t = redis.call('TIME'); local e = t[1]*1000000+t[2]+300000; \
                      repeat t = redis.call('TIME') until t[1]*1000000+t[2] > e; return 1";
        redis_eval(&mut other, script);
    });
    let stalled = load::open_loop(&mut c, &keys, 2_000.0, 1.0, 1).unwrap();
    stall.join().unwrap();
    // 300 ms of 1 s: 600 of 2000 requests waited, so the 90th percentile must show it.
    assert!(stalled.latency.p90_ns > 50_000_000, "{stalled:?}");
    let closed = load::closed_loop(&mut c, &keys, 16, 0.3, 1).unwrap();
    assert!(closed.requests > 100);
    eprintln!("quiet {quiet:?}\nstalled {stalled:?}\nclosed {closed:?}");
}

fn redis_eval(c: &mut mega_lab::program::redis::Connection, script: &str) {
    let packed = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
    c.send_packed_command(packed.as_bytes()).unwrap();
    c.recv_response().unwrap();
}

#[test]
fn it_can_have_huge_pages_be_bound_and_be_started_under_another_program() {
    let under_a_shell = ["sh", "-c", "\"$@\"; exit 7", "sh"].map(Into::into).to_vec();
    let options = ServerOptions {
        prefix: under_a_shell,
        pin: Some(0),
        ..ServerOptions::default()
    };
    let Some(server) = server(&options) else { return };
    assert_eq!(status_of(server.pid(), "Cpus_allowed_list:"), "0");
    assert_eq!(status_of(server.pid(), "THP_enabled:"), "1");
    assert_ne!(server.launcher_pid(), server.pid() as u32);
    let pid = server.pid();
    assert_eq!(server.stop().unwrap().code(), Some(7), "the status of what was started");
    assert!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "redis-server itself has ended"
    );
}

#[test]
fn a_dropped_server_has_ended() {
    let Some(server) = server(&ServerOptions::default()) else {
        return;
    };
    let pid = server.pid();
    let directory = server.directory().to_path_buf();
    drop(server);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(!directory.exists());
}
