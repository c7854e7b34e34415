//! Chosen blocks where mega.ko is loaded when there is something to do, the kernel's own choice where it is not.

use mega_core::planner::Planner;

use super::chosen::{self, Chosen};
use super::node::Node;
use super::{Actuator, CompactError, Task, Way, Work};
use crate::proc::ProcRoot;

/// Both ways, and which was taken last.
pub struct Auto {
    chosen: Chosen,
    node: Option<Node>,
    last: Way,
}

impl Auto {
    /// Finds out what there is now.
    pub fn open(root: &ProcRoot, planner: Box<dyn Planner>) -> Result<Self, CompactError> {
        let (last, node) = match (chosen::find(), Node::open(root)) {
            (Ok(_), node) => (Way::Chosen, node.ok()),
            (Err(_), node) => (Way::Node, Some(node?)),
        };
        let chosen = Chosen::unchecked(planner);
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
