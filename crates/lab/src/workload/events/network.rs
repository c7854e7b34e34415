//! A simulated network of hosts and switches: every message, every link-free note and every module is a separate object from the
//! allocator.
//!
//! ```text
//!                     switch                   16 ports down and one up; a table of the addresses it has seen
//!             ┌─────────┴─────────┐
//!          switch      …       switch          links are 16 times as fast one level up
//!        ┌────┴────┐         ┌────┴────┐
//!      host  …   host      host  …   host      each keeps a window of requests in flight and answers the others'
//! ```
//!
//! The next due message comes from a binary heap of pointers, whose comparisons dereference the objects.

use super::message::{Due, Event, Message};
use crate::memory::content::{below, mix};
use crate::workload::WorkloadError;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Ports of a switch that lead down.
const FANOUT: usize = 16;
/// Addresses that a switch remembers.
const TABLE_MOST: usize = 512;
/// Simulated time of a byte on a host's link: 100 Mb/s.
const BYTE_NS: u64 = 80;
/// Propagation delay of a link.
const LINK_NS: u64 = 500;
/// Mean think time of a host before a request, and before an answer.
const ASK_NS: u64 = 1_000_000;
const ANSWER_NS: u64 = 50_000;

/// One end of a link.
#[derive(Debug, Default)]
struct Port {
    is_busy: bool,
    waiting: VecDeque<Box<Message>>,
}

#[derive(Debug)]
struct Host {
    port: Port,
    /// State of its random numbers.
    random: u64,
    /// Requests answered so far.
    answered: u64,
}

#[derive(Debug)]
struct Switch {
    level: usize,
    /// Its index within its level.
    number: usize,
    /// The last one is the uplink.
    ports: Vec<Port>,
    table: BTreeMap<usize, usize>,
}

/// The network and all messages in flight.
#[derive(Debug)]
#[allow(clippy::vec_box)] // Modules are objects of their own where this stands for OMNeT++, and how they lie in memory is what matters.
pub struct Network {
    hosts: Vec<Box<Host>>,
    switches: Vec<Box<Switch>>,
    /// The first switch of each level.
    levels: Vec<usize>,
    due: BinaryHeap<Due>,
    now_ns: u64,
    order: u64,
    /// Requests that each host keeps in flight.
    window: usize,
    /// Over all answers, in order.
    checksum: u64,
    seed: u64,
}

/// Approximate bytes of a message with its data, and of a host with its share of the switches.
const MESSAGE_BYTES: usize = 272;
const HOST_BYTES: usize = 640;

/// The number of hosts for which a network takes about `bytes`.
#[must_use]
pub fn hosts_fitting(bytes: usize, window: usize) -> usize {
    (bytes / window.saturating_mul(MESSAGE_BYTES).saturating_add(HOST_BYTES)).max(2)
}

impl Network {
    /// A network of `hosts`, each about to send `window` requests.
    #[must_use]
    pub fn new(hosts: usize, window: usize, seed: u64) -> Self {
        let mut network = Self {
            hosts: Vec::with_capacity(hosts),
            switches: Vec::new(),
            levels: Vec::new(),
            due: BinaryHeap::with_capacity(hosts.saturating_mul(window + 1)),
            now_ns: 0,
            order: 0,
            window,
            checksum: seed,
            seed,
        };
        let mut below_it = hosts;
        while network.levels.is_empty() || below_it > 1 {
            let level = network.levels.len();
            let count = below_it.div_ceil(FANOUT);
            network.levels.push(network.switches.len());
            for number in 0..count {
                network.switches.push(Box::new(Switch {
                    level,
                    number,
                    ports: (0..=FANOUT).map(|_| Port::default()).collect(),
                    table: BTreeMap::new(),
                }));
            }
            below_it = count;
        }
        for host in 0..hosts {
            network.hosts.push(Box::new(Host {
                port: Port::default(),
                random: mix(seed ^ mix(host as u64)),
                answered: 0,
            }));
            for _ in 0..window {
                network.ask(host);
            }
        }
        network
    }

    /// Number of messages, notes excluded.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.hosts.len() * self.window
    }

    /// The simulated time in ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Checksum of the history.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        self.checksum
    }

    fn random(&mut self, host: usize) -> u64 {
        let host = &mut self.hosts[host];
        host.random = host.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(host.random)
    }

    fn schedule(&mut self, mut message: Box<Message>, after_ns: u64, what: Event, at: usize) {
        message.time_ns = self.now_ns + after_ns;
        message.order = self.order;
        message.what = what;
        message.at = at;
        self.order += 1;
        self.due.push(Due(message));
    }

    /// A host creates a request and sends it after its think time.
    fn ask(&mut self, host: usize) {
        let random = self.random(host);
        // Half of the requests stay within the first switch, half of the rest within the second, and so on.
        let near = FANOUT.saturating_pow(1 + (random as u8).trailing_ones());
        let start = host - host % near;
        let end = start.saturating_add(near).min(self.hosts.len());
        let to = start + below(random, (end - start) as u64) as usize;
        let mut message = Box::new(Message {
            time_ns: 0,
            order: 0,
            what: Event::Send,
            is_reply: false,
            at: host,
            port: 0,
            from: host,
            // No host asks itself: its neighbour takes the request instead.
            to: match to {
                to if to != host => to,
                _ => (host + 1) % self.hosts.len(),
            },
            content: 0,
            data: Box::default(),
        });
        message.fill(random);
        let think = below(mix(random), 2 * ASK_NS);
        self.schedule(message, think, Event::Send, host);
    }

    /// Processes the next due message.
    ///
    /// # Errors
    /// When a message is corrupt, or time goes backwards.
    pub fn step(&mut self) -> Result<(), WorkloadError> {
        let Some(Due(mut message)) = self.due.pop() else {
            return Err(WorkloadError::corrupt("events", format_args!("no message is due")));
        };
        if message.time_ns < self.now_ns {
            return Err(WorkloadError::corrupt(
                "events",
                format_args!("a message is due {} ns late", self.now_ns - message.time_ns),
            ));
        }
        self.now_ns = message.time_ns;
        let (at, hosts) = (message.at, self.hosts.len());
        match message.what {
            Event::Free => {
                let port = self.port(at, message.port);
                match port.waiting.pop_front() {
                    Some(next) => self.transmit(at, message.port, next),
                    None => port.is_busy = false,
                }
            }
            Event::Send => self.send(at, 0, message),
            Event::Arrive if at >= hosts => {
                let port = self.switches[at - hosts].port_to(message.to);
                self.send(at, port, message);
            }
            Event::Arrive => {
                message.check()?;
                self.checksum = mix(self.checksum ^ message.content ^ self.now_ns);
                if message.is_reply {
                    // The object is freed and a new one allocated.
                    drop(message);
                    self.hosts[at].answered += 1;
                    self.ask(at);
                } else {
                    let content = self.random(at);
                    message.fill(content);
                    (message.from, message.to, message.is_reply) = (at, message.from, true);
                    self.schedule(message, below(mix(content), 2 * ANSWER_NS), Event::Send, at);
                }
            }
        }
        Ok(())
    }

    fn port(&mut self, at: usize, port: usize) -> &mut Port {
        match at.checked_sub(self.hosts.len()) {
            None => &mut self.hosts[at].port,
            Some(switch) => &mut self.switches[switch].ports[port],
        }
    }

    /// Sends through a port once it is free.
    fn send(&mut self, at: usize, port: usize, message: Box<Message>) {
        let way = self.port(at, port);
        if way.is_busy {
            way.waiting.push_back(message);
            return;
        }
        way.is_busy = true;
        self.transmit(at, port, message);
    }

    fn transmit(&mut self, at: usize, port: usize, message: Box<Message>) {
        let hosts = self.hosts.len();
        let (level, neighbour) = match at.checked_sub(hosts) {
            None => (0, hosts + at / FANOUT),
            Some(switch) => {
                let Switch { level, number, .. } = *self.switches[switch];
                match port {
                    FANOUT => (level + 1, hosts + self.levels[level + 1] + number / FANOUT),
                    port if level == 0 => (0, number * FANOUT + port),
                    port => (level, hosts + self.levels[level - 1] + number * FANOUT + port),
                }
            }
        };
        let takes = (message.bytes() * BYTE_NS / (FANOUT as u64).pow(level as u32)).max(1);
        let note = Box::new(Message {
            time_ns: 0,
            order: 0,
            what: Event::Free,
            is_reply: false,
            at,
            port,
            from: at,
            to: at,
            content: 0,
            data: Box::default(),
        });
        self.schedule(note, takes, Event::Free, at);
        self.schedule(message, takes + LINK_NS, Event::Arrive, neighbour);
    }

    /// Checks all messages and each host's number of requests in flight. Returns the number of answers.
    ///
    /// # Errors
    /// The first corruption.
    pub fn verify(&self) -> Result<u64, WorkloadError> {
        let mut under_way = vec![0usize; self.hosts.len()];
        let ports = self.hosts.iter().map(|host| &host.port);
        let ports = ports.chain(self.switches.iter().flat_map(|switch| &switch.ports));
        let waiting = ports.flat_map(|port| port.waiting.iter().map(|message| &**message));
        for message in waiting.chain(self.due.iter().map(|due| &*due.0)) {
            if message.what == Event::Free {
                continue;
            }
            message.check()?;
            let of = if message.is_reply { message.to } else { message.from };
            let count = under_way.get_mut(of);
            *count.ok_or_else(|| {
                WorkloadError::corrupt("events", format_args!("a message of host {of}, which does not exist"))
            })? += 1;
        }
        match under_way.iter().position(|count| *count != self.window) {
            Some(host) => Err(WorkloadError::corrupt(
                "events",
                format_args!(
                    "host {host} has {} requests under way, not {} (seed {})",
                    under_way[host], self.window, self.seed
                ),
            )),
            None => Ok(self.hosts.iter().map(|host| host.answered).sum()),
        }
    }
}

impl Switch {
    /// The port towards a host: from its table, else from the topology, which is then entered in the table.
    fn port_to(&mut self, to: usize) -> usize {
        if let Some(port) = self.table.get(&to) {
            return *port;
        }
        let below_port = FANOUT.pow(self.level as u32);
        let port = match to / below_port / FANOUT == self.number {
            true => to / below_port % FANOUT,
            false => FANOUT,
        };
        if self.table.len() >= TABLE_MOST {
            // Evict the next entry by address.
            let next = self.table.range(to..).next().map(|(address, _)| *address);
            match next {
                Some(address) => self.table.remove(&address),
                None => self.table.pop_first().map(|(_, port)| port),
            };
        }
        self.table.insert(to, port);
        port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_and_no_message_is_lost() {
        for hosts in [2, 16, 17, 300, 1000] {
            let mut network = Network::new(hosts, 3, 7);
            assert_eq!(network.messages(), 3 * hosts);
            for _ in 0..100_000 {
                network.step().unwrap();
            }
            let answers = network.verify().unwrap();
            // Of a request and its answer come 30 events at most here: two for each of seven links and the two that begin them, twice.
            assert!(answers as usize > 100_000 / 40, "{hosts} hosts: {answers} answers");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_history() {
        let history = |seed| {
            let mut network = Network::new(200, 4, seed);
            (0..50_000).for_each(|_| network.step().unwrap());
            (network.checksum(), network.now_ns())
        };
        assert_eq!(history(1), history(1));
        assert_ne!(history(1), history(2));
    }

    #[test]
    fn a_changed_word_and_a_lost_message_are_found() {
        let mut network = Network::new(40, 2, 3);
        (0..1000).for_each(|_| network.step().unwrap());
        network.verify().unwrap();
        let mut all = std::mem::take(&mut network.due).into_vec();
        let at = all.iter().position(|due| due.0.what != Event::Free).unwrap();
        all[at].0.data[1] ^= 4;
        network.due = all.into();
        assert_eq!(network.verify().unwrap_err().exit_code(), 3);
        let mut all = std::mem::take(&mut network.due).into_vec();
        all.retain(|due| due.0.check().is_ok());
        network.due = all.into();
        assert!(network.verify().unwrap_err().to_string().contains("under way"));
    }

    #[test]
    fn a_switch_forgets_rather_than_grow() {
        let mut switch = Switch {
            level: 1,
            number: 0,
            ports: Vec::new(),
            table: BTreeMap::new(),
        };
        for to in 0..5000 {
            let port = if to < 256 { to / 16 } else { FANOUT };
            assert_eq!(switch.port_to(to), port);
            assert_eq!(switch.port_to(to), port);
            assert!(switch.table.len() <= TABLE_MOST);
        }
    }
}
