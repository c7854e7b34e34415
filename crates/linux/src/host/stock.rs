//! Making free blocks beside everything else: a thread that carries out one order at a time. Nobody ever waits for it but who ends it, and
//! then it gives up within milliseconds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TryRecvError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use mega_core::host::HostEvent;
use mega_core::stock::{Compacted, Ended, Order};
use mega_core::units::Blocks;

use crate::compact::{compact, Actuator, CompactError};
use crate::proc::{buddyinfo, ProcRoot};

/// What the thread has to say of an order.
struct Answer {
    done: Compacted,
    error: Option<String>,
}

/// The thread, from the first order on.
pub struct StockThread {
    orders: Option<SyncSender<Order>>,
    answers: Receiver<Answer>,
    busy: bool,
    stop: Arc<AtomicBool>,
    /// Nanoseconds of processor time that others spent for us: processes that we started, the kernel's threads.
    elsewhere_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    said: Option<String>,
}

impl StockThread {
    /// A thread that makes blocks in this way.
    pub fn new(mut actuator: Box<dyn Actuator>, root: ProcRoot) -> Self {
        let (orders, to_do) = sync_channel::<Order>(1);
        let (answer, answers) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let elsewhere_ns = Arc::new(AtomicU64::new(0));
        let (told, spent) = (Arc::clone(&stop), Arc::clone(&elsewhere_ns));
        let thread = std::thread::spawn(move || {
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
        });
        Self {
            orders: Some(orders),
            answers,
            busy: false,
            stop,
            elsewhere_ns,
            thread: Some(thread),
            said: None,
        }
    }

    /// Begins to carry out an order; false while the last one is under way.
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

    /// What came of the last order, if it is over; once. A failure is said once for each text.
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
                            .map(|why| HostEvent::Notice(format!("no free blocks are made: {why}"))),
                    );
                }
                events.push(HostEvent::Compacted(answer.done));
                events
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Vec::new(),
        }
    }

    /// Processor time that others spent for us.
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

impl Drop for StockThread {
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

    fn wait(stock: &mut StockThread) -> Vec<HostEvent> {
        let began = Instant::now();
        loop {
            let events = stock.take();
            if !events.is_empty() || began.elapsed() > Duration::from_secs(20) {
                return events;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_order_holds_up_nobody_and_ending_it_takes_no_time() {
        let mut stock = StockThread::new(Box::new(Slow(Duration::from_secs(60))), ProcRoot::default());
        let began = Instant::now();
        assert!(stock.begin(&ORDER));
        assert!(!stock.begin(&ORDER), "the last one is under way");
        assert!(stock.take().is_empty());
        drop(stock);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn what_came_of_it_is_told_once_and_what_others_spent_counts() {
        let mut stock = StockThread::new(Box::new(Slow(Duration::from_millis(5))), ProcRoot::default());
        for round in 1..=2 {
            assert!(stock.begin(&ORDER));
            let events = wait(&mut stock);
            assert!(
                matches!(&events[..], [HostEvent::Compacted(done)] if done.ended == Ended::Through),
                "{events:?}"
            );
            assert!(stock.take().is_empty());
            assert!(stock.cpu_elsewhere() >= round * Duration::from_secs(7));
        }
    }

    #[test]
    fn why_it_cannot_be_is_said_once_and_each_order_is_answered() {
        let mut stock = StockThread::new(Box::new(Unable), ProcRoot::default());
        for notices in [1, 0] {
            assert!(stock.begin(&ORDER));
            let events = wait(&mut stock);
            let said = events
                .iter()
                .filter(|event| matches!(event, HostEvent::Notice(_)))
                .count();
            assert_eq!(said, notices, "{events:?}");
            assert!(matches!(events.last(), Some(HostEvent::Compacted(done)) if done.ended == Ended::Refused));
        }
    }
}
