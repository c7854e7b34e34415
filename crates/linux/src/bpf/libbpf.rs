//! What libbpf says besides its error numbers.

use std::sync::{Mutex, Once};

use libbpf_rs::PrintLevel;

/// libbpf's last complaints, newest last.
static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep(_level: PrintLevel, text: String) {
    let mut kept = COMPLAINTS.lock().unwrap_or_else(|e| e.into_inner());
    if kept.len() >= 8 {
        kept.remove(0);
    }
    // A verifier log says why in its last lines.
    let lines: Vec<&str> = text.trim().lines().collect();
    kept.push(lines[lines.len().saturating_sub(4)..].join(" / "));
}

/// Keeps libbpf's warnings from now on, instead of having them printed, and forgets those before.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    });
    COMPLAINTS.lock().unwrap_or_else(|e| e.into_inner()).clear();
}

/// The last three warnings.
pub(crate) fn complaints() -> String {
    let kept = COMPLAINTS.lock().unwrap_or_else(|e| e.into_inner());
    kept.iter().rev().take(3).rev().cloned().collect::<Vec<_>>().join("; ")
}
