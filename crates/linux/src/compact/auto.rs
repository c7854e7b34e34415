//! mega.ko with chosen blocks while it is loaded, the kernel's own compaction otherwise.

use mega_core::compaction::planner::Planner;

use super::chosen::{self, ChosenBlocks};
use super::node::Node;
use super::{Actuator, CompactError, Task, Way, Work};
use crate::proc::ProcRoot;

/// Both methods, and which ran last.
pub struct Auto {
    chosen: ChosenBlocks,
    node: Option<Node>,
    last: Way,
}

impl Auto {
    /// Opens what is available now.
    pub fn open(root: &ProcRoot, planner: Box<dyn Planner>) -> Result<Self, CompactError> {
        let (last, node) = match (chosen::find(), Node::open(root)) {
            (Ok(_), node) => (Way::Chosen, node.ok()),
            (Err(_), node) => (Way::Node, Some(node?)),
        };
        let chosen = ChosenBlocks::unchecked(planner);
        Ok(Self { chosen, node, last })
    }
}

impl Actuator for Auto {
    fn way(&self) -> Way {
        self.last
    }

    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError> {
        self.last = Way::Chosen;
        match (self.chosen.make(task), &mut self.node) {
            (Err(CompactError::Missing { .. }), Some(node)) => {
                self.last = Way::Node;
                node.make(task)
            }
            (done, _) => done,
        }
    }
}
