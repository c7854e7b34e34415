//! Configuration of a machine.

use crate::cost::{CostError, Costs};
use crate::physical::{Layout, LayoutError};
use crate::tlb::{Preset, PresetError};

/// Why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Its memory.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Its costs.
    #[error(transparent)]
    Costs(#[from] CostError),
    /// Its TLB.
    #[error(transparent)]
    Tlb(#[from] PresetError),
}

/// A machine's configuration. The fault policy is passed separately, since it has state.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its physical memory.
    pub layout: Layout,
    /// Costs of operations.
    pub costs: Costs,
    /// Its TLB; none: translation is free.
    pub tlb: Option<Preset>,
    /// Seed of everything random.
    pub seed: u64,
    /// Track and check memory contents: slow, for tests.
    pub check_contents: bool,
    /// Swap space, in bytes.
    pub swap_bytes: u64,
    /// A split maps zero-filled base pages to the zero page and frees them (Linux 6.12 and later).
    pub split_frees: bool,
    /// `vm.compaction_proactiveness` (Linux 5.9 and later), in percent; 0: kcompactd runs only when it is woken.
    pub proactiveness: u8,
    /// Anonymous mappings of 2 MB and more are aligned to 2 MB (Linux 6.7 and later).
    pub align_mappings: bool,
}

impl Config {
    /// A machine with so much memory, without TLB or swap, with the development machine's costs and a recent kernel's behaviour.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Self {
        Self {
            layout: Layout::of_bytes(bytes),
            costs: Costs::default(),
            tlb: None,
            seed: 1,
            check_contents: false,
            swap_bytes: 0,
            split_frees: true,
            proactiveness: 20,
            align_mappings: true,
        }
    }

    /// Checks the configuration. [`super::Machine::new`] makes the nearest valid one, except for the TLB.
    ///
    /// # Errors
    /// The invalid part.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.layout.check()?;
        self.costs.check()?;
        if let Some(preset) = &self.tlb {
            preset.check()?;
        }
        Ok(())
    }
}
