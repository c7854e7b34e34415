//! hugetlb pages for one run: whether there are enough, and having the kernel set some aside meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use mega_core::compaction::target::Order;
use mega_core::units::{Blocks, HUGE_PAGE_BYTES};
use mega_linux::compact::{compact, open, Way};
use mega_linux::knobs::{Knobs, STATE_FOLDER};
use mega_linux::proc::ProcRoot;
use memomania_layout::page::Kind;
use memomania_layout::settings::{Fallback, Partial};

use super::{note, Reserve};
use crate::exit::Failure;
use crate::settings::{describe_restored, open_knobs};

/// Time that compaction may take before pages are reserved.
const COMPACTION: Duration = Duration::from_secs(10);

/// What is set aside. Dropping it puts it back, too.
pub struct Reserved {
    knobs: Option<Knobs>,
}

impl Reserved {
    /// Gives the pages back, and says what could not be put back.
    pub fn put_back(&mut self) {
        let Some(mut knobs) = self.knobs.take() else { return };
        match knobs.restore() {
            Ok(done) if done.left.is_empty() && done.failed.is_empty() => {}
            Ok(done) => describe_restored(&done).iter().for_each(|line| note(line)),
            Err(error) => note(&format!("cannot restore the reservation: {error}; run `mega off`")),
        }
    }
}

/// Sees to it that there are the pages that the layouts state, or says that there are not.
pub fn prepare(settings: &Partial, reserve: Option<&Reserve>) -> Result<Reserved> {
    let fallback = settings.settings().fallback;
    let mut reserved = Reserved { knobs: None };
    for kind in [Kind::Huge, Kind::Gigantic] {
        let layouts = [settings.heap, settings.anon];
        let demands = layouts.iter().flatten().map(|layout| layout.demand(kind));
        let (stated, open) = demands.fold((0, false), |(bytes, open), (more, also)| (bytes + more, open || also));
        if stated == 0 && !open {
            continue;
        }
        let wanted = match reserve.map(|reserve| reserve.of(kind)) {
            Some(Some(bytes)) => bytes.0.div_ceil(kind.bytes() as u64),
            Some(None) if open => {
                let why = format!("--reserve: the last interval of {kind} pages has no length; say how much as in --reserve={kind}=1G");
                return Err(Failure::usage(why));
            }
            _ => (stated / kind.bytes()) as u64,
        };
        let pages = Pages::new(kind)?;
        let mut free = pages.free()?;
        if free < wanted && reserve.is_some() {
            if reserved.knobs.is_none() {
                let mut knobs = open_knobs()?;
                // What one that was killed left behind is put back first.
                let left = knobs.recover().context("cannot put back what was left behind")?;
                describe_restored(&left).iter().for_each(|line| note(line));
                reserved.knobs = Some(knobs);
            }
            if let Some(knobs) = reserved.knobs.as_mut() {
                pages.raise(knobs, wanted)?;
            }
            free = pages.free()?;
        }
        if free >= wanted {
            continue;
        }
        let short = format!("{wanted} pages of {kind} are needed, {free} are free");
        match fallback {
            Fallback::Fail if reserve.is_none() => {
                bail!("{short}; reserve them with --reserve, or use --fallback smaller")
            }
            Fallback::Fail => bail!("{short}: the kernel found no more contiguous memory; try --fallback smaller"),
            Fallback::Smaller => note(&format!("{short}: using smaller pages for the rest")),
        }
    }
    Ok(reserved)
}

/// Says that the machine has transparent huge pages turned off, where a layout wants them.
pub fn check_transparent(settings: &Partial) -> Result<()> {
    let wanted = [settings.heap, settings.anon];
    if !wanted.iter().flatten().any(|layout| layout.has(Kind::Thp)) {
        return Ok(());
    }
    let folder = ProcRoot::default().sys.join("kernel/mm/transparent_hugepage");
    let chosen = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    let (all, own) = (chosen("enabled"), chosen("hugepages-2048kB/enabled"));
    // Kernels before 6.8 have no file for each size.
    let is_off = own.contains("[never]") || all.contains("[never]") && (own.is_empty() || own.contains("[inherit]"));
    if !is_off && !all.is_empty() {
        return Ok(());
    }
    let why = format!(
        "transparent huge pages are disabled ({})",
        folder.join("enabled").display()
    );
    match settings.settings().fallback {
        Fallback::Fail => bail!("{why}"),
        Fallback::Smaller => note(&format!("{why}: 2M:thp gets base pages")),
    }
    Ok(())
}

/// hugetlb's files of one size.
struct Pages {
    kind: Kind,
    folder: PathBuf,
}

impl Pages {
    fn new(kind: Kind) -> Result<Self> {
        let root = ProcRoot::default();
        let folder = root
            .sys
            .join("kernel/mm/hugepages")
            .join(format!("hugepages-{}kB", kind.bytes() >> 10));
        if !folder.is_dir() {
            bail!("impossible here: this kernel or processor has no hugetlb pages of {kind}");
        }
        Ok(Self { kind, folder })
    }

    fn read(&self, file: &str) -> Result<u64> {
        let path = self.folder.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let number = text.trim().parse();
        number.with_context(|| format!("{} is not a number", path.display()))
    }

    /// Free, and promised to nobody.
    fn free(&self) -> Result<u64> {
        Ok(self
            .read("free_hugepages")?
            .saturating_sub(self.read("resv_hugepages")?))
    }

    /// Has the kernel set aside so many that `wanted` are free. Compacts first where it is short; what is still missing then is missing.
    fn raise(&self, knobs: &mut Knobs, wanted: u64) -> Result<()> {
        let path = self.folder.join("nr_hugepages");
        let target = self.read("nr_hugepages")? + wanted.saturating_sub(self.free()?);
        let raise = |knobs: &mut Knobs| {
            let why = || format!("cannot reserve pages of {}", self.kind);
            knobs.raise(&path, target).with_context(why)
        };
        if raise(knobs)? < target && self.make_room(target).is_some() {
            raise(knobs)?;
        }
        Ok(())
    }

    /// The compaction help of `mega compact`.
    fn make_room(&self, target: u64) -> Option<()> {
        let missing = target.saturating_sub(self.read("nr_hugepages").ok()?);
        let root = ProcRoot::default();
        let order = Order {
            blocks: Blocks(missing * (self.kind.bytes() as u64 / HUGE_PAGE_BYTES)),
            time: COMPACTION,
        };
        let mut way = open(Way::Node, &root, Path::new(STATE_FOLDER)).ok()?;
        compact(way.as_mut(), &root, &order, &[], &|| false).ok().map(|_| ())
    }
}
