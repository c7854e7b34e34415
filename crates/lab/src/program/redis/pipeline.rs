//! Requests over several connections from one thread, a batch in flight on each: while the server works on one batch, the
//! client makes the next.

use super::{Connection, RedisError, Server};
use crate::timing::clock::now_ns;
use redis::Value;

/// A batch is sent when it has this many bytes, however few requests these are.
const MOST_BYTES: usize = 256 << 10;

/// One connection, with its unanswered requests.
struct Lane<T> {
    connection: Connection,
    sent_ns: u64,
    waiting: Vec<T>,
}

/// Several connections to one server.
pub struct Pipeline {
    connections: Vec<Connection>,
    /// Requests in a batch, at least 1.
    pub depth: usize,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} connections, {} requests each",
            self.connections.len(),
            self.depth
        )
    }
}

impl Pipeline {
    /// `lanes` connections with `depth` requests in flight on each.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn open(server: &Server, lanes: usize, depth: usize) -> Result<Self, RedisError> {
        let connections = (0..lanes.max(1)).map(|_| server.connect()).collect::<Result<_, _>>()?;
        Ok(Self { connections, depth })
    }

    /// Sends what `next` appends to the buffer, until it returns `None`. Hands each answer to `answer`, with what `next`
    /// returned for it and the ns from sending its batch to reading it; and after each batch, how many were answered so
    /// far to `batch`. Returns their number. After an error the connections are closed.
    ///
    /// # Errors
    /// When the connection is lost, or what the functions return.
    pub fn run<T, E: From<RedisError>>(
        &mut self,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<T>,
        mut answer: impl FnMut(T, Value, u64) -> Result<(), E>,
        mut batch: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<u64, E> {
        let protocol = |e| E::from(RedisError::Protocol(e));
        let lane = |connection| Lane {
            connection,
            sent_ns: 0,
            waiting: Vec::new(),
        };
        let mut lanes: Vec<Lane<T>> = std::mem::take(&mut self.connections).into_iter().map(lane).collect();
        let (mut packed, mut answered, mut more) = (Vec::new(), 0, true);
        loop {
            let mut in_flight = 0;
            for lane in &mut lanes {
                if !lane.waiting.is_empty() {
                    for tag in lane.waiting.drain(..) {
                        let value = lane.connection.recv_response().map_err(protocol)?;
                        answer(tag, value, now_ns() - lane.sent_ns)?;
                        answered += 1;
                    }
                    batch(answered)?;
                }
                packed.clear();
                while more && lane.waiting.len() < self.depth.max(1) && packed.len() < MOST_BYTES {
                    match next(&mut packed) {
                        Some(tag) => lane.waiting.push(tag),
                        None => more = false,
                    }
                }
                if !lane.waiting.is_empty() {
                    in_flight += 1;
                    lane.sent_ns = now_ns();
                    lane.connection.send_packed_command(&packed).map_err(protocol)?;
                }
            }
            if in_flight == 0 {
                self.connections = lanes.into_iter().map(|lane| lane.connection).collect();
                return Ok(answered);
            }
        }
    }
}
