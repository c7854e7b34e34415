//! A real Redis as a measured program: started privately, filled with verifiable values, loaded, and stopped.
//!
//! ```no_run
//! use mega_lab::program::redis::{keys::Keys, Server, ServerOptions};
//! let server = Server::start(&ServerOptions::default())?;
//! let mut connection = server.connect()?;
//! let keys = Keys { count: 100_000, value_bytes: 4096, seed: 1 };
//! keys.load(&mut connection)?;
//! keys.verify(&mut connection, |_| true)?;
//! server.stop()?;
//! # Ok::<(), mega_lab::program::redis::RedisError>(())
//! ```

mod items;
pub mod keys;
pub mod load;
pub mod pipeline;
pub mod scenario;
mod server;

pub use redis::{cmd, Connection, Value};
pub use scenario::{Redis, Scenario};
pub use server::{Server, ServerOptions};

/// How to install redis-server.
pub const HOW_TO_INSTALL: &str =
    "redis-server is not in PATH; install it with `apt install redis-server` or `dnf install redis`";

/// Why Redis failed.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// redis-server is not installed.
    #[error("{HOW_TO_INSTALL}")]
    Missing,
    /// It did not start.
    #[error("redis-server did not start: {0}")]
    Start(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Redis refused a command or closed the connection.
    #[error("redis: {0}")]
    Protocol(#[from] redis::RedisError),
    /// An unexpected answer.
    #[error("unexpected answer of redis to {command}: {answer}")]
    Answer {
        /// The command.
        command: &'static str,
        /// The answer, or what is missing in it.
        answer: String,
    },
    /// A value differs from what was stored: the worst case.
    #[error("corrupt value: {0}")]
    Corrupt(String),
}

impl RedisError {
    fn system(what: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// The fields of `INFO section`.
///
/// # Errors
/// When Redis does not answer.
pub fn info(connection: &mut Connection, section: &str) -> Result<redis::InfoDict, RedisError> {
    Ok(redis::cmd("INFO").arg(section).query(connection)?)
}

/// A number of `INFO section`.
///
/// # Errors
/// When it is not there.
pub fn info_number(connection: &mut Connection, section: &str, field: &'static str) -> Result<u64, RedisError> {
    let missing = || RedisError::Answer {
        command: "INFO",
        answer: format!("no number {field}"),
    };
    info(connection, section)?.get(field).ok_or_else(missing)
}

/// Resident bytes as Redis sees them (`used_memory_rss`), and bytes in use (`used_memory`).
///
/// # Errors
/// When Redis does not report it.
pub fn memory(connection: &mut Connection) -> Result<(u64, u64), RedisError> {
    Ok((
        info_number(connection, "memory", "used_memory_rss")?,
        info_number(connection, "memory", "used_memory")?,
    ))
}

/// Starts BGSAVE, waits for it, and returns the time in ns.
///
/// # Errors
/// When it fails or takes longer than ten minutes.
pub fn bgsave(connection: &mut Connection) -> Result<u64, RedisError> {
    let start = crate::timing::clock::now_ns();
    let _: redis::Value = redis::cmd("BGSAVE").query(connection)?;
    while info_number(connection, "persistence", "rdb_bgsave_in_progress")? != 0 {
        if crate::timing::clock::now_ns() - start > 600_000_000_000 {
            return Err(RedisError::Answer {
                command: "BGSAVE",
                answer: "still running after ten minutes".into(),
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let elapsed_ns = crate::timing::clock::now_ns() - start;
    match info(connection, "persistence")?.get::<String>("rdb_last_bgsave_status") {
        Some(status) if status == "ok" => Ok(elapsed_ns),
        other => Err(RedisError::Answer {
            command: "BGSAVE",
            answer: format!("{other:?}"),
        }),
    }
}
