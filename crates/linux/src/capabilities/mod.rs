//! What this machine offers: one finding per thing that managing rests on, and what is lost without it. For `mega doctor`.
//!
//! What can be tried is tried, on memory of our own. Nothing on the machine is changed.

use std::fs::{self, OpenOptions};
use std::path::Path;

use mega_core::units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use serde::Serialize;

use crate::bpf;
use crate::knobs::thp::{self, Mode, Thp};
use crate::module::{uapi, Module};
use crate::proc::{cpuinfo, pressure, read_bounded, smaps, stat, task, ProcRoot, SMALL_BYTES};
use crate::reservation;
use crate::sys::{self, Madvise, PageRun, Scratch, ThpDisable};
use crate::waits::Waits;

/// How much of something there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Availability {
    /// All of it.
    Ok,
    /// It works, with the stated consequence.
    Partial,
    /// None of it.
    Missing,
}

/// One thing about the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short stable name.
    pub name: &'static str,
    /// Whether it is there.
    pub status: Availability,
    /// What was seen.
    pub detail: String,
    /// What that means for managing; empty when nothing is lost.
    pub consequence: String,
}

impl Finding {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Availability::Ok, detail, "")
    }

    fn new(name: &'static str, status: Availability, detail: impl Into<String>, consequence: &str) -> Self {
        Self {
            name,
            status,
            detail: detail.into(),
            consequence: consequence.to_owned(),
        }
    }

    fn missing(name: &'static str, detail: impl Into<String>, consequence: &str) -> Self {
        Self::new(name, Availability::Missing, detail, consequence)
    }

    fn partial(name: &'static str, detail: impl Into<String>, consequence: &str) -> Self {
        Self::new(name, Availability::Partial, detail, consequence)
    }
}

/// The machine, as far as managing is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Of the kernel: "6.18.44".
    pub kernel_release: String,
    /// Base page in bytes.
    pub base_page_bytes: u64,
    /// Huge page in bytes; none without transparent huge pages.
    pub huge_page_bytes: Option<u64>,
    /// Its settings of transparent huge pages.
    pub thp: Option<Thp>,
    /// Everything looked at, in a fixed order.
    pub findings: Vec<Finding>,
}

/// Looks at the machine.
pub fn examine(root: &ProcRoot) -> Machine {
    let release = read_word(&root.proc.join("sys/kernel/osrelease")).unwrap_or_else(|| "unknown".into());
    let thp = thp::read(root);
    let huge_page_bytes = thp.as_ref().ok().and_then(|thp| thp.as_ref()?.huge_page_bytes);
    let mut findings = vec![kernel(&release), sizes(huge_page_bytes)];
    findings.extend(capabilities());
    findings.extend([
        ebpf_programs(bpf::SCAN),
        btf(root),
        lockdown(root),
        pagemap_scan(),
        collapse(),
        cold(),
        felt_stall(),
        split_huge_pages(root),
        damon(root),
        psi(root),
        module(),
        reservations(root),
    ]);
    let thp = match thp {
        Ok(Some(thp)) => {
            findings.extend(thp_settings(&thp));
            Some(thp)
        }
        Ok(None) => {
            let detail = format!("{} is not there", root.thp("").display());
            findings.push(Finding::missing("thp", detail, "no huge page can be made"));
            None
        }
        Err(error) => {
            findings.push(Finding::partial("thp", error.to_string(), "its settings are not known"));
            None
        }
    };
    findings.push(gigantic(root));
    Machine {
        kernel_release: release,
        base_page_bytes: sys::base_page_bytes(),
        huge_page_bytes,
        thp,
        findings,
    }
}

fn read_word(path: &Path) -> Option<String> {
    let text = read_bounded(path, SMALL_BYTES).ok()?;
    Some(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Reservations at faults, of a kernel with kernel/reservation.
fn reservations(root: &ProcRoot) -> Finding {
    const LOST: &str = "policies that decide at faults run in the simulator only (`mega sim`)";
    match reservation::read(root) {
        Ok(Some(found)) if found.is_allowed => Finding::ok(
            "reservations",
            format!("for programs that ask; huge from {} populated pages", found.threshold),
        ),
        Ok(Some(_)) => Finding::missing("reservations", "transparent_hugepage/reserve/enabled is never", LOST),
        Ok(None) => Finding::missing(
            "reservations",
            "not in this kernel (kernel/reservation has the patches)",
            LOST,
        ),
        Err(error) => Finding::partial("reservations", error.to_string(), LOST),
    }
}

/// Major and minor number of a release such as "6.12.43+deb13-amd64".
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Splitting a huge page gives its zero-filled base pages back (Linux 6.12 and later).
pub fn split_frees(root: &ProcRoot) -> bool {
    let release = read_word(&root.proc.join("sys/kernel/osrelease"));
    release
        .as_deref()
        .and_then(version)
        .is_some_and(|version| version >= (6, 12))
}

fn kernel(release: &str) -> Finding {
    match version(release) {
        Some(version) if version >= (6, 12) => Finding::ok("kernel", release),
        Some(version) if version >= (6, 1) => Finding::partial(
            "kernel",
            format!("{release}; from 6.12 on a split frees zero-filled pages"),
            "demoting frees nothing by itself",
        ),
        Some(_) => Finding::missing(
            "kernel",
            format!("{release}, older than 6.1"),
            "no promotion: MADV_COLLAPSE is missing",
        ),
        None => Finding::partial("kernel", release, "its version is not known"),
    }
}

fn sizes(huge_page_bytes: Option<u64>) -> Finding {
    let base = sys::base_page_bytes();
    let detail = match huge_page_bytes {
        Some(huge) => format!("base {base} bytes, huge {huge} bytes"),
        None => format!("base {base} bytes, huge unknown"),
    };
    match (base, huge_page_bytes) {
        (BASE_PAGE_BYTES, Some(HUGE_PAGE_BYTES)) => Finding::ok("page-sizes", detail),
        (BASE_PAGE_BYTES, None) => Finding::partial("page-sizes", detail, "2 MB is assumed"),
        _ => Finding::missing(
            "page-sizes",
            detail,
            "nothing can be managed: made for pages of 4 KB and 2 MB",
        ),
    }
}

const NO_WALK: &str = "no eBPF walk: observing costs far more and sees no accessed bits";

fn capabilities() -> Vec<Finding> {
    let wanted = [
        ("cap-bpf", "CAP_BPF", CapabilitySet::BPF, NO_WALK),
        ("cap-perfmon", "CAP_PERFMON", CapabilitySet::PERFMON, NO_WALK),
        (
            "cap-sys-nice",
            "CAP_SYS_NICE",
            CapabilitySet::SYS_NICE,
            "nothing can be promoted, demoted or aged in other processes",
        ),
        (
            "cap-sys-ptrace",
            "CAP_SYS_PTRACE",
            CapabilitySet::SYS_PTRACE,
            "other users' processes cannot be seen or managed",
        ),
        (
            "cap-sys-admin",
            "CAP_SYS_ADMIN",
            CapabilitySet::SYS_ADMIN,
            "no frame numbers: no map of physical memory",
        ),
    ];
    let effective = sys::effective_capabilities();
    let one = |(name, kernel_name, bit, consequence)| match &effective {
        // CAP_SYS_ADMIN includes the two that were split off from it.
        Ok(set) if set.contains(bit) => Finding::ok(name, format!("{kernel_name} in effect")),
        Ok(set)
            if set.contains(CapabilitySet::SYS_ADMIN)
                && (bit == CapabilitySet::BPF || bit == CapabilitySet::PERFMON) =>
        {
            Finding::ok(name, format!("CAP_SYS_ADMIN stands in for {kernel_name}"))
        }
        Ok(_) => Finding::missing(name, format!("{kernel_name} not in effect"), consequence),
        Err(errno) => Finding::partial(name, format!("cannot be asked for: {errno}"), consequence),
    };
    wanted.into_iter().map(one).collect()
}

fn ebpf_programs(object: &[u8]) -> Finding {
    match bpf::absence(object) {
        None => Finding::ok("ebpf-programs", format!("built in, {} bytes", object.len())),
        Some(absence) => Finding::missing("ebpf-programs", absence, NO_WALK),
    }
}

fn btf(root: &ProcRoot) -> Finding {
    let path = root.sys.join("kernel/btf/vmlinux");
    match fs::metadata(&path) {
        Ok(file) => Finding::ok("btf", format!("{}, {} bytes", path.display(), file.len())),
        Err(error) => Finding::missing(
            "btf",
            format!("{}: {error}", path.display()),
            "no eBPF walk: the kernel was built without CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

fn lockdown(root: &ProcRoot) -> Finding {
    let Some(text) = read_word(&root.sys.join("kernel/security/lockdown")) else {
        return Finding::partial("lockdown", "not visible (no lockdown, or securityfs not mounted)", "");
    };
    match thp::chosen(&text) {
        "none" => Finding::ok("lockdown", "none"),
        "integrity" => Finding::partial(
            "lockdown",
            "integrity",
            "no debugfs, no unsigned modules, no fault tracing by fentry",
        ),
        mode => Finding::missing("lockdown", mode, "no eBPF walk: kernel memory may not be read"),
    }
}

const NO_SCAN: &str = "without eBPF, observing reads /proc/PID/pagemap, at three times the cost";

fn pagemap_scan() -> Finding {
    let tried = || -> Result<bool, Errno> {
        let page = sys::base_page_bytes();
        let mut scratch = Scratch::map(4 * page as usize)?;
        let range = scratch.range();
        scratch.touch(range.start..range.start + page, page as usize);
        let pagemap = rustix::fs::open(
            "/proc/self/pagemap",
            rustix::fs::OFlags::RDONLY,
            rustix::fs::Mode::empty(),
        )?;
        let mut runs = [PageRun::default(); 4];
        let filled = sys::pagemap_scan(pagemap.as_fd(), range.clone(), &mut runs)?;
        Ok(filled == 1 && runs[0].start == range.start && runs[0].end == range.start + page)
    };
    match tried() {
        Ok(true) => Finding::ok("pagemap-scan", "the PAGEMAP_SCAN ioctl works"),
        Ok(false) => Finding::missing(
            "pagemap-scan",
            "PAGEMAP_SCAN answers something else than is mapped",
            NO_SCAN,
        ),
        Err(Errno::NOTTY) => Finding::missing("pagemap-scan", "needs Linux 6.7", NO_SCAN),
        Err(errno) => Finding::missing("pagemap-scan", errno.to_string(), NO_SCAN),
    }
}

/// Why a kind of advice came to nothing.
#[derive(Debug, thiserror::Error)]
enum Untried {
    /// The call said so.
    #[error("{0}")]
    Refused(Errno),
    /// It was not made, or what it did is not known.
    #[error("{0}")]
    Other(String),
}

/// Tries a kind of advice on a touched region of our own; answers the huge pages there afterwards, in bytes.
fn advise_ourselves(advice: Madvise) -> Result<u64, Untried> {
    let errno = |errno: Errno| Untried::Other(errno.to_string());
    let page = sys::base_page_bytes() as usize;
    let mut scratch = Scratch::map(2 * HUGE_PAGE_BYTES as usize).map_err(errno)?;
    let start = scratch.range().start.next_multiple_of(HUGE_PAGE_BYTES);
    let region = start..start + HUGE_PAGE_BYTES;
    scratch.touch(region.clone(), page);
    let pidfd = sys::pidfd_open(std::process::id()).map_err(errno)?;
    sys::process_madvise(pidfd.as_fd(), start, HUGE_PAGE_BYTES, advice).map_err(Untried::Refused)?;
    let entries = smaps::read(&ProcRoot::default(), std::process::id()).map_err(|e| Untried::Other(e.to_string()))?;
    let entry = entries
        .iter()
        .find(|e| (e.mapping.start..e.mapping.end).contains(&start));
    Ok(entry.and_then(|e| e.usage.anon_huge_bytes).unwrap_or(0))
}

/// Tries of a collapse: on a fragmented node of Linux 6.1 one was seen to succeed and to leave no huge page.
const TRIES: usize = 3;

fn collapse() -> Finding {
    let disabled = sys::own_thp_disable() == Ok(ThpDisable::Fully);
    let is_huge = |tried: &Result<u64, Untried>| tried.as_ref().is_ok_and(|huge| *huge >= HUGE_PAGE_BYTES);
    let mut tried = advise_ourselves(Madvise::Collapse);
    for _ in 1..TRIES {
        if is_huge(&tried) {
            break;
        }
        tried = advise_ourselves(Madvise::Collapse);
    }
    finding_of_collapse(tried, disabled)
}

/// What the last try says.
fn finding_of_collapse(tried: Result<u64, Untried>, disabled: bool) -> Finding {
    const LOST: &str = "nothing can be promoted";
    match tried {
        Ok(huge) if huge >= HUGE_PAGE_BYTES => Finding::ok("collapse", "MADV_COLLAPSE made a huge page of ours"),
        Ok(_) => Finding::missing("collapse", "MADV_COLLAPSE says yes, the page tables say no", LOST),
        Err(error) if disabled => Finding::partial(
            "collapse",
            format!("{error}: THP is disabled for ourselves by prctl(PR_SET_THP_DISABLE)"),
            "what we start inherits that and cannot be promoted",
        ),
        // The call is there. Compaction made no block just now, or our control group has no room for one.
        Err(Untried::Refused(error @ (Errno::NOMEM | Errno::BUSY | Errno::AGAIN))) => Finding::partial(
            "collapse",
            format!("MADV_COLLAPSE: {error}: no free 2 MB block was found, or our control group has no room for one"),
            "nothing can be promoted until there is one",
        ),
        Err(error) => Finding::missing("collapse", format!("MADV_COLLAPSE: {error}"), LOST),
    }
}

/// What a promotion is charged to the stall budget by.
fn felt_stall() -> Finding {
    match Waits::new() {
        Ok(waits) => Finding::ok(
            "felt-stall",
            format!("waits for mmap_lock are measured {}", waits.place()),
        ),
        Err(why) => Finding::partial(
            "felt-stall",
            why,
            "a promotion is charged to the stall budget in full where its program faulted meanwhile",
        ),
    }
}

fn cold() -> Finding {
    match advise_ourselves(Madvise::Cold) {
        Ok(_) => Finding::ok("cold", "MADV_COLD works"),
        Err(error) => Finding::missing(
            "cold",
            format!("MADV_COLD: {error}"),
            "no utilization, and nothing can be demoted",
        ),
    }
}

fn split_huge_pages(root: &ProcRoot) -> Finding {
    let path = root.sys.join("kernel/debug/split_huge_pages");
    // Opened, never written: a "1" there would split every huge page of the machine.
    match OpenOptions::new().write(true).open(&path) {
        Ok(_) => Finding::ok("split-huge-pages", path.display().to_string()),
        Err(error) => Finding::partial(
            "split-huge-pages",
            format!("{}: {error}", path.display()),
            "demoting has MADV_COLD only; locked memory stays huge",
        ),
    }
}

fn damon(root: &ProcRoot) -> Finding {
    let comm = |pid| stat::read(root, pid).ok().map(|stat| stat.comm);
    let running = task::processes(root)
        .map(|pids| {
            pids.into_iter()
                .filter_map(comm)
                .filter(|comm| comm.starts_with("kdamond"))
                .count()
        })
        .unwrap_or(0);
    match running {
        0 => Finding::ok("damon", "no kdamond runs"),
        n => Finding::partial(
            "damon",
            format!("{n} kdamond running"),
            "it clears accessed bits too: utilization reads too low where the kernel's PG_young is not visible",
        ),
    }
}

/// Nothing is lost without it: what it adds is said where it is.
fn module() -> Finding {
    match Module::open() {
        Ok(module) => {
            let young = match module.can(uapi::CAN_YOUNG) {
                true => "; reclaim still learns of accesses that it clears",
                false => "; the kernel has no PG_young to keep what it clears",
            };
            let detail = format!(
                "mega.ko, version {} of its interface: {}{young}",
                module.info().version,
                module.abilities().join(", ")
            );
            Finding::ok("module", detail)
        }
        Err(error) if error.is_absent() => {
            Finding::partial("module", "mega.ko is not loaded (optional): docs/kernel-module.md", "")
        }
        Err(error) => Finding::partial("module", error.to_string(), "it is not used"),
    }
}

fn psi(root: &ProcRoot) -> Finding {
    const LOST: &str = "memory pressure is seen late, by free memory alone";
    match pressure::read(root) {
        Ok(Some(_)) => Finding::ok("psi", "on"),
        Ok(None) => Finding::missing("psi", "off; psi=1 on the kernel's command line switches it on", LOST),
        Err(error) => Finding::missing("psi", error.to_string(), LOST),
    }
}

fn thp_settings(thp: &Thp) -> Vec<Finding> {
    let mode = thp.huge_page_mode();
    let enabled = format!("{}, for 2 MB pages {mode}", thp.enabled);
    let mut findings = vec![match mode {
        Mode::Always => Finding::partial(
            "thp-enabled",
            enabled,
            "faults and khugepaged make huge pages everywhere, also those that we demoted: best for the trim policy",
        ),
        _ => Finding::ok("thp-enabled", enabled),
    }];
    findings.push(match thp.sizes.len() {
        0 => Finding::missing("thp-sizes", "no setting per page size (6.8)", "no --fault-size"),
        n => Finding::ok("thp-sizes", format!("{n} sizes have their own setting")),
    });
    let none = thp.khugepaged.max_ptes_none;
    let all_but_one = HUGE_PAGE_BYTES / BASE_PAGE_BYTES - 1;
    findings.push(match none {
        None => Finding::partial("max-ptes-none", "unknown", "khugepaged may promote what was demoted"),
        Some(none) if none >= all_but_one && mode != Mode::Never => Finding::partial(
            "max-ptes-none",
            none.to_string(),
            "khugepaged makes a huge page of a single base page, and promotes again what was demoted",
        ),
        Some(none) => Finding::ok("max-ptes-none", none.to_string()),
    });
    findings.push(match (thp.shrink_underused, none) {
        (None, _) => Finding::partial(
            "shrink-underused",
            "not in this kernel (6.13)",
            "the kernel takes no waste back itself",
        ),
        (Some(false), _) => Finding::partial("shrink-underused", "off", "the kernel takes no waste back itself"),
        (Some(true), Some(none)) if none >= all_but_one => Finding::partial(
            "shrink-underused",
            format!("on, without effect while max_ptes_none is {none}"),
            "the kernel takes no waste back itself",
        ),
        (Some(true), _) => Finding::ok("shrink-underused", "on"),
    });
    findings
}

fn gigantic(root: &ProcRoot) -> Finding {
    const LOST: &str = "no pages of 1 GB";
    match cpuinfo::read(root) {
        Ok(cpu) if cpu.has("pdpe1gb") => Finding::ok("gigantic-pages", "the processor has pages of 1 GB"),
        Ok(_) => Finding::partial(
            "gigantic-pages",
            "the processor does not say that it has pages of 1 GB",
            LOST,
        ),
        Err(error) => Finding::partial("gigantic-pages", error.to_string(), LOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_releases() {
        assert_eq!(version("6.12.43+deb13-amd64"), Some((6, 12)));
        assert_eq!(version("6.1-rc3"), Some((6, 1)));
        assert_eq!(version("x"), None);
        assert_eq!(version("99999999999.1"), None);
        assert_eq!(kernel("5.15.0").status, Availability::Missing);
        assert_eq!(kernel("6.1.0-37-amd64").status, Availability::Partial);
    }

    #[test]
    fn other_page_sizes_are_refused() {
        assert_eq!(sizes(Some(HUGE_PAGE_BYTES)).status, Availability::Ok);
        assert_eq!(sizes(Some(32 << 20)).status, Availability::Missing);
        assert_eq!(sizes(None).status, Availability::Partial);
    }

    #[test]
    fn a_collapse_that_finds_no_block_just_now_is_no_reason_not_to_manage() {
        let status = |tried| finding_of_collapse(tried, false).status;
        for errno in [Errno::NOMEM, Errno::BUSY, Errno::AGAIN] {
            assert_eq!(status(Err(Untried::Refused(errno))), Availability::Partial);
        }
        assert_eq!(status(Err(Untried::Refused(Errno::INVAL))), Availability::Missing);
        assert_eq!(status(Err(Untried::Other("no pidfd".into()))), Availability::Missing);
        assert_eq!(status(Ok(0)), Availability::Missing);
        assert_eq!(status(Ok(HUGE_PAGE_BYTES)), Availability::Ok);
    }

    #[test]
    fn a_build_without_clang_is_a_finding() {
        let finding = ebpf_programs(b"");
        assert_eq!(
            (finding.status, finding.consequence.as_str()),
            (Availability::Missing, NO_WALK)
        );
        assert!(finding.detail.contains("built without eBPF"), "{finding:?}");
        assert_eq!(ebpf_programs(b"x").status, Availability::Ok);
    }

    #[test]
    fn a_machine_without_anything_is_described_without_panic() {
        let machine = examine(&ProcRoot::under(Path::new("/nonexistent")));
        assert_eq!(machine.kernel_release, "unknown");
        assert!(machine
            .findings
            .iter()
            .any(|f| f.name == "thp" && f.status == Availability::Missing));
        assert!(machine
            .findings
            .iter()
            .any(|f| f.name == "btf" && f.status == Availability::Missing));
    }

    #[test]
    fn whatever_is_lost_is_said_and_names_are_unique() {
        let machine = examine(&ProcRoot::default());
        let mut names: Vec<_> = machine.findings.iter().map(|f| f.name).collect();
        for finding in &machine.findings {
            assert!(
                finding.status != Availability::Missing || !finding.consequence.is_empty(),
                "{finding:?}"
            );
            assert!(
                finding.status != Availability::Ok || finding.consequence.is_empty(),
                "{finding:?}"
            );
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), machine.findings.len());
        assert!(serde_json::to_string(&machine).unwrap().contains("base_page_bytes"));
        eprintln!("{machine:#?}");
    }
}
