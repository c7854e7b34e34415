//! What the preloaded processes say of themselves when they end, or while they run, for people.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use comfy_table::{presets, CellAlignment, Table};
use mega_core::units::Bytes;
use serde_json::Value;

use super::note;
use crate::exit::tell;

/// Processes of which each is shown; of more, only the largest.
const MOST: usize = 12;
/// Bytes of reports that are read.
const LARGEST: u64 = 64 << 20;

/// The file to which processes append a line each.
pub struct Lines {
    path: PathBuf,
    file: Option<File>,
    /// Where this run's lines begin.
    start: u64,
    is_ours: bool,
}

impl Lines {
    /// The user's file, or one of our own that goes when this is dropped. "-" is standard error, and nothing to read.
    pub fn open(path: Option<&str>) -> Result<Self> {
        let (path, is_ours) = match path.filter(|path| !path.is_empty()) {
            Some("-") => {
                return Ok(Self {
                    path: "-".into(),
                    file: None,
                    start: 0,
                    is_ours: false,
                })
            }
            // Processes may be in other folders.
            Some(path) => (
                std::path::absolute(path).context("cannot determine the report's path")?,
                false,
            ),
            None => {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_nanos();
                let name = format!("mega-mosaic-{}-{now}.jsonl", std::process::id());
                (std::env::temp_dir().join(name), true)
            }
        };
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(!is_ours).create_new(is_ours);
        let opened = options
            .open(&path)
            .and_then(|mut file| Ok((file.seek(SeekFrom::End(0))?, file)));
        let (start, file) = opened.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path,
            file: Some(file),
            start,
            is_ours,
        })
    }

    /// For the library.
    pub fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// What this run's processes have reported until now.
    pub fn read(&self) -> Result<Vec<Value>> {
        let Some(mut file) = self.file.as_ref() else {
            return Ok(Vec::new());
        };
        let mut text = String::new();
        file.seek(SeekFrom::Start(self.start))
            .context("cannot read the report")?;
        file.take(LARGEST)
            .read_to_string(&mut text)
            .context("cannot read the report")?;
        // A line that a killed process left half written is none.
        Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }

    /// Says that pages were short, if they were, and all the rest if it is `wanted`.
    pub fn say(&self, wanted: bool) -> Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        let all = self.read()?;
        for size in ["2M", "1G"] {
            let short: Vec<u64> = all
                .iter()
                .map(|one| number(&one["short"][size]))
                .filter(|n| *n > 0)
                .collect();
            if !short.is_empty() {
                let (times, processes) = (short.iter().sum::<u64>(), short.len());
                note(&format!(
                    "no page of {size} was available {times} times, in {processes} process(es)"
                ));
            }
        }
        let failed: u64 = all.iter().map(|one| number(&one["demotions_failed"])).sum();
        if failed > 0 {
            note(&format!(
                "{failed} requests on parts of hugetlb pages failed; use 2M:thp there"
            ));
        }
        if wanted {
            tell(table(all, "at the end").trim_end());
        }
        Ok(())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A number that is there, or 0.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

const POOLS: [&str; 3] = ["heap", "brk", "anon"];
const SIZES: [&str; 4] = ["4K", "2M:thp", "2M", "1G"];

fn peak(process: &Value) -> u64 {
    let each = POOLS.iter().flat_map(|pool| SIZES.iter().map(move |size| (pool, size)));
    each.map(|(pool, size)| number(&process["pools"][pool]["pages"][size]["peak_bytes"]))
        // A running process may say anything.
        .fold(0, u64::saturating_add)
}

/// Processes as a table, the largest first; the last column is what is in use `when`.
pub fn table(mut all: Vec<Value>, when: &str) -> String {
    if all.is_empty() {
        return "mega: no process reported; one that is killed or calls _exit does not".to_string();
    }
    let count = all.len();
    all.sort_by_key(|process| std::cmp::Reverse(peak(process)));
    all.truncate(MOST);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "process",
        "pool",
        "pages",
        "peak",
        "hugetlb taken",
        "unused of it",
        when,
    ]);
    let mut notes = String::new();
    for process in &all {
        let name = format!("{} {}", process["pid"], process["comm"].as_str().unwrap_or("?"));
        let mut shown = name.clone();
        for (pool, size) in POOLS.iter().flat_map(|pool| SIZES.iter().map(move |size| (pool, size))) {
            let pages = &process["pools"][pool]["pages"][size];
            if number(&pages["peak_bytes"]) == 0 {
                continue;
            }
            // Fragmentation: what of whole hugetlb pages no part was in use of, at the most.
            let (taken, unused) = match pages["taken_peak_bytes"].as_u64() {
                Some(bytes) => {
                    let unused = bytes.saturating_sub(number(&pages["peak_bytes"]));
                    let percent = 100.0 * unused as f64 / bytes.max(1) as f64;
                    (Bytes(bytes).to_string(), format!("{percent:.0}%"))
                }
                None => (String::new(), String::new()),
            };
            let (peak, used) = (Bytes(number(&pages["peak_bytes"])), Bytes(number(&pages["used_bytes"])));
            table.add_row([
                std::mem::take(&mut shown),
                (*pool).to_string(),
                (*size).to_string(),
                peak.to_string(),
                taken,
                unused,
                used.to_string(),
            ]);
        }
        let kernel = process["left_to_the_kernel"].as_object();
        let left = kernel.into_iter().flatten().filter(|(_, n)| number(n) > 0);
        let left: Vec<String> = left.map(|(why, n)| format!("{why} {n}")).collect();
        notes += &format!("{name}: {} mappings served", process["served"]);
        if !left.is_empty() {
            notes += &format!("; left to the kernel: {}", left.join(", "));
        }
        for (field, what) in [
            ("demoted", "hugetlb pages replaced"),
            ("fork_copies", "copies for forks"),
        ] {
            if number(&process[field]) > 0 {
                notes += &format!("; {what}: {}", process[field]);
            }
        }
        notes.push('\n');
    }
    (3..=6).for_each(|column| {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    });
    let more = match count - all.len() {
        0 => String::new(),
        more => format!("and {more} smaller processes\n"),
    };
    format!("{}\n{notes}{more}", table.trim_fmt())
}
