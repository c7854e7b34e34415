//! Taking the best scanner that works here.

use super::{BpfScanner, ModuleScanner, PagemapScanScanner, PagemapScanner, ScanError, Scanner};

/// Which scanner is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference<'a> {
    /// The best that works.
    Best,
    /// This one or none: `ebpf`, `pagemap_scan`, `pagemap` or `module`.
    Only(&'a str),
}

type Make = fn() -> Result<Box<dyn Scanner>, ScanError>;

/// Best first.
const ALL: [(&str, Make); 3] = [
    ("ebpf", || Ok(Box::new(BpfScanner::new()?))),
    ("pagemap_scan", || Ok(Box::new(PagemapScanScanner::new()?))),
    ("pagemap", || Ok(Box::new(PagemapScanner::new()?))),
];

/// The preferred scanner, and why better ones were refused. Takes 0.2 s for the eBPF one.
///
/// # Errors
/// None works; the text has the reason of each.
pub fn choose(prefer: Preference<'_>) -> Result<(Box<dyn Scanner>, Vec<String>), ScanError> {
    if prefer == Preference::Only("module") {
        return Ok((Box::new(ModuleScanner::new()?), Vec::new()));
    }
    let mut reasons = Vec::new();
    for (name, make) in ALL {
        match prefer {
            Preference::Only(wanted) if wanted != name => continue,
            _ => {}
        }
        match make() {
            Ok(scanner) => return Ok((scanner, reasons)),
            Err(ScanError::Refused { what, why }) if what == name => reasons.push(format!("{name}: {why}")),
            Err(e) => reasons.push(format!("{name}: {e}")),
        }
    }
    let why = match (prefer, reasons.is_empty()) {
        (Preference::Only(wanted), true) => {
            format!("there is no scanner {wanted}; there are ebpf, pagemap_scan, pagemap, module")
        }
        _ => reasons.join("; "),
    };
    Err(ScanError::refused("scanner", why))
}
