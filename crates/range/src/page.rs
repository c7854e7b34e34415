//! The page of memory in which an agent says what it did: words of 64 bits, little-endian, at fixed places.

use core::fmt;

/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"megaagnt");
/// The second word: the page's version.
pub const VERSION: u64 = 1;
/// Bytes of the page.
pub const BYTES: usize = 4096;

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// The words of the page behind magic number and version, in this order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Field { $($(#[$doc])* $name,)* }

        impl Field {
            /// All of them.
            pub const ALL: &[Field] = &[$(Field::$name,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Field::$name => $text,)* }
            }
        }
    };
}

fields! {
    /// The process.
    Pid "pid",
    /// What runs beside the program: 0 nothing, 1 a process, 2 a thread.
    Helper "helper",
    /// Why there is no helper: 0 there is or was one; else an error number, or 1000 and more: see [`Reason`].
    Reason "reason",
    /// Looks at resident memory.
    Ticks "ticks",
    /// Looks at mappings and page tables.
    Looks "looks",
    /// Processor time that looks and decisions took.
    LookNs "look_ns",
    /// Time that actions took.
    ActNs "act_ns",
    /// Mappings advised.
    Advised "advised",
    /// Regions in them.
    AdvisedRegions "advised_regions",
    /// Mappings whose advice was withdrawn.
    Withdrawn "withdrawn",
    /// Regions populated ahead.
    Populated "populated_regions",
    /// Regions collapsed.
    Collapsed "collapsed",
    /// Collapses that failed.
    CollapseFailed "collapse_failed",
    /// Regions split and given back.
    GivenBack "given_back",
    /// Regions left to base pages as probes.
    Probes "probes",
    /// Ranges followed.
    Ranges "ranges",
    /// Ranges that found no room in the table.
    Missed "missed",
    /// Resident bytes at the last look.
    Resident "resident_bytes",
    /// The error number that switched advice off.
    AdviseOff "advise_off",
    /// The error number that switched populating ahead off.
    PopulateOff "populate_off",
    /// The error number that switched collapses off.
    CollapseOff "collapse_off",
    /// The error number that switched splits off.
    SplitOff "split_off",
    /// Mappings advised before their first touch.
    Born "advised_at_birth",
    /// Finished regions that the program has filled densely.
    Dense "dense_regions",
    /// And those that it has not.
    Sparse "sparse_regions",
    /// Base pages of all of them that it has not filled.
    Holes "hole_pages",
    /// Finished regions of earlier runs that its profile has.
    Earlier "earlier_regions",
    /// The most that was resident at a look.
    Peak "peak_resident_bytes",
    /// Which program it is: the first eight bytes of its build ID; 0: it has none.
    Program "program",
    /// Its name, as the kernel had it at the start: 16 bytes.
    Name "name",
    /// The rest of it.
    NameRest "name_rest",
    /// Blocks that the helper touched and freed first, so that the program need not wait until its host backs them.
    Warmed "warmed_blocks",
}

impl Field {
    /// Which word of the page it is.
    pub fn word(self) -> usize {
        self as usize + 2
    }
}

/// Why there is no helper, where it is no error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The machine's setting `enabled` is `never`.
    Never = 1000,
    /// /proc does not show this process.
    NoProc = 1001,
    /// The kernel does not say when the program ends or execs.
    NoTidWord = 1002,
    /// The program ended, or another took its place.
    ProgramLeft = 1003,
    /// The program has threads: a thread took over.
    ThreadTookOver = 1004,
    /// The program moved to another control group.
    OtherGroup = 1005,
    /// The program switched huge pages off for itself.
    Disabled = 1006,
    /// The helper could not be confined.
    NotConfined = 1007,
    /// The program waits for children of all kinds, as tracers do: the helper would be one.
    WaitsForClones = 1008,
    /// The program's children end soon.
    ShortChildren = 1009,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 10] = [
        Reason::Never,
        Reason::NoProc,
        Reason::NoTidWord,
        Reason::ProgramLeft,
        Reason::ThreadTookOver,
        Reason::OtherGroup,
        Reason::Disabled,
        Reason::NotConfined,
        Reason::WaitsForClones,
        Reason::ShortChildren,
    ];

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Never => "transparent_hugepage/enabled is never",
            Reason::NoProc => "/proc does not show this process",
            Reason::NoTidWord => "the kernel does not say when the program ends or execs",
            Reason::ProgramLeft => "the program ended or execed",
            Reason::ThreadTookOver => "the program has threads: a thread took over",
            Reason::OtherGroup => "the program moved to another control group",
            Reason::Disabled => "the program switched huge pages off for itself",
            Reason::NotConfined => "the helper could not be confined",
            Reason::WaitsForClones => "the program waits for children of all kinds, as tracers do",
            Reason::ShortChildren => "the program's children end soon: it gets a helper once it maps much",
        }
    }
}

/// A page that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'a>(&'a [u8]);

/// Why it is no agent's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAPage {
    /// Too short.
    Short,
    /// It does not begin as such a page does.
    Magic,
    /// Another version's.
    Version(u64),
}

impl fmt::Display for NotAPage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAPage::Short => write!(to, "shorter than an agent's page"),
            NotAPage::Magic => write!(to, "not an agent's page"),
            NotAPage::Version(version) => write!(to, "an agent's page of version {version}, not {VERSION}"),
        }
    }
}

impl<'a> Page<'a> {
    /// Reads a page.
    ///
    /// # Errors
    /// If it is none, or another version's.
    pub fn read(bytes: &'a [u8]) -> Result<Self, NotAPage> {
        let page = Page(bytes);
        if bytes.len() < (Field::ALL.len() + 2) * 8 {
            return Err(NotAPage::Short);
        }
        if page.word(0) != MAGIC {
            return Err(NotAPage::Magic);
        }
        match page.word(1) {
            VERSION => Ok(page),
            version => Err(NotAPage::Version(version)),
        }
    }

    fn word(&self, index: usize) -> u64 {
        let at = index * 8;
        let bytes = self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    }

    /// What it says of a field.
    pub fn get(&self, field: Field) -> u64 {
        self.word(field.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_and_what_is_none_is_refused() {
        let mut bytes = [0u8; BYTES];
        assert_eq!(Page::read(&bytes), Err(NotAPage::Magic));
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        assert_eq!(Page::read(&bytes), Err(NotAPage::Version(0)));
        bytes[8..16].copy_from_slice(&VERSION.to_le_bytes());
        let at = Field::Collapsed.word() * 8;
        bytes[at] = 7;
        assert_eq!(Page::read(&bytes).map(|page| page.get(Field::Collapsed)), Ok(7));
        assert_eq!(Page::read(&bytes[..20]), Err(NotAPage::Short));
    }
}
