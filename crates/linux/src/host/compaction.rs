//! Background compaction: a thread that carries out one order at a time. Only its drop joins the thread, which takes milliseconds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TryRecvError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use mega_core::compaction::target::{Compacted, Ended, Order};
use mega_core::host::HostEvent;
use mega_core::units::Blocks;

use crate::compact::{compact, Actuator, CompactError};
use crate::proc::{buddyinfo, ProcRoot};

/// The result of an order.
struct Answer {
    done: Compacted,
    error: Option<String>,
}

/// The compaction thread.
pub struct CompactionThread {
    orders: Option<SyncSender<Order>>,
    answers: Receiver<Answer>,
    busy: bool,
    stop: Arc<AtomicBool>,
    /// Nanoseconds of processor time spent outside this process: helper processes, kcompactd.
    elsewhere_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    said: Option<String>,
}

impl CompactionThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel gives none.
    pub fn new(mut actuator: Box<dyn Actuator>, root: ProcRoot) -> std::io::Result<Self> {
        let (orders, to_do) = sync_channel::<Order>(1);
        let (answer, answers) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let elsewhere_ns = Arc::new(AtomicU64::new(0));
        let (told, spent) = (Arc::clone(&stop), Arc::clone(&elsewhere_ns));
        let thread = std::thread::Builder::new().name("mega-compact".into()).spawn(move || {
            for order in to_do {
                let result = compact(actuator.as_mut(), &root, &order, &[], &|| told.load(Ordering::Relaxed));
                let answer_now = match result {
                    Ok(report) => {
                        // The thread's own time is in the process's.
                        spent.fetch_add(report.elsewhere.as_nanos() as u64, Ordering::Relaxed);
                        Answer {
                            done: report.done,
                            error: None,
                        }
                    }
                    Err(error) => refused(actuator.as_ref(), &root, &order, &error),
                };
                if answer.send(answer_now).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            orders: Some(orders),
            answers,
            busy: false,
            stop,
            elsewhere_ns,
            thread: Some(thread),
            said: None,
        })
    }

    /// Starts an order; false while the last one is under way.
    pub fn begin(&mut self, order: &Order) -> bool {
        if self.busy {
            return false;
        }
        let sent = self
            .orders
            .as_ref()
            .is_some_and(|orders| orders.try_send(*order).is_ok());
        self.busy = sent;
        sent
    }

    /// The result of the last order when it has finished, reported once. Each error text is reported once.
    pub fn take(&mut self) -> Vec<HostEvent> {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.busy = false;
                let mut events = Vec::new();
                if answer.error.is_some() && answer.error != self.said {
                    self.said = answer.error;
                    events.extend(
                        self.said
                            .iter()
                            .map(|why| HostEvent::Notice(format!("compaction failed: {why}"))),
                    );
                }
                events.push(HostEvent::Compacted(answer.done));
                events
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Vec::new(),
        }
    }

    /// Processor time spent outside this process on its behalf.
    pub fn cpu_elsewhere(&self) -> Duration {
        Duration::from_nanos(self.elsewhere_ns.load(Ordering::Relaxed))
    }
}

fn refused(actuator: &dyn Actuator, root: &ProcRoot, order: &Order, error: &CompactError) -> Answer {
    let free = buddyinfo::read(root).map_or(Blocks(0), |free| free.free_blocks());
    Answer {
        done: Compacted {
            way: actuator.way().word(),
            asked: order.blocks,
            before: free,
            after: free,
            on_lists: Blocks(0),
            moved_pages: 0,
            took: Duration::ZERO,
            cpu: Duration::ZERO,
            ended: Ended::Refused,
            chosen: None,
        },
        error: Some(error.to_string()),
    }
}

impl Drop for CompactionThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::compact::{Task, Way, Work};

    /// Works for so long, or until it is told to stop.
    struct Slow(Duration);

    impl Actuator for Slow {
        fn way(&self) -> Way {
            Way::Node
        }

        fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError> {
            let began = Instant::now();
            while began.elapsed() < self.0 && !task.is_stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(Work {
                ended: Ended::Through,
                helpers_cpu: Duration::from_secs(7),
                chosen: None,
            })
        }
    }

    /// Cannot.
    struct Unable;

    impl Actuator for Unable {
        fn way(&self) -> Way {
            Way::Chosen
        }

        fn make(&mut self, _: &Task<'_>) -> Result<Work, CompactError> {
            Err(CompactError::Missing {
                way: Way::Chosen,
                why: "a test".into(),
            })
        }
    }

    const ORDER: Order = Order {
        blocks: Blocks(1 << 40),
        time: Duration::from_secs(60),
    };

    fn wait(thread: &mut CompactionThread) -> Vec<HostEvent> {
        let began = Instant::now();
        loop {
            let events = thread.take();
            if !events.is_empty() || began.elapsed() > Duration::from_secs(20) {
                return events;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_order_blocks_nobody_and_stopping_it_is_immediate() {
        let mut thread = CompactionThread::new(Box::new(Slow(Duration::from_secs(60))), ProcRoot::default()).unwrap();
        let began = Instant::now();
        assert!(thread.begin(&ORDER));
        assert!(!thread.begin(&ORDER), "the last one is under way");
        assert!(thread.take().is_empty());
        drop(thread);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn a_result_is_reported_once_and_time_spent_elsewhere_counts() {
        let mut thread = CompactionThread::new(Box::new(Slow(Duration::from_millis(5))), ProcRoot::default()).unwrap();
        for round in 1..=2 {
            assert!(thread.begin(&ORDER));
            let events = wait(&mut thread);
            assert!(
                matches!(&events[..], [HostEvent::Compacted(done)] if done.ended == Ended::Through),
                "{events:?}"
            );
            assert!(thread.take().is_empty());
            assert!(thread.cpu_elsewhere() >= round * Duration::from_secs(7));
        }
    }

    #[test]
    fn a_failure_is_reported_once_and_each_order_is_answered() {
        let mut thread = CompactionThread::new(Box::new(Unable), ProcRoot::default()).unwrap();
        for notices in [1, 0] {
            assert!(thread.begin(&ORDER));
            let events = wait(&mut thread);
            let said = events
                .iter()
                .filter(|event| matches!(event, HostEvent::Notice(_)))
                .count();
            assert_eq!(said, notices, "{events:?}");
            assert!(matches!(events.last(), Some(HostEvent::Compacted(done)) if done.ended == Ended::Refused));
        }
    }
}
