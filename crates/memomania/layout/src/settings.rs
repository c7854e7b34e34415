//! All that can be chosen, and how sources are laid over each other: the command line over the environment over a file over defaults.

use std::fmt;

use crate::layout::{Layout, Size, LARGEST_POOL};

/// What happens when pages of the wanted size are short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// The request fails with ENOMEM after one line on standard error.
    Fail,
    /// The next smaller size is taken, and reported.
    #[default]
    Smaller,
}

/// What happens to hugetlb pages when the program forks. Parent and child then share them until one writes, which takes a new page; where there
/// is none, the kernel kills the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fork {
    /// The child gets a copy on base pages, unless that would be more than 64 MB and three times as many pages are free.
    #[default]
    Auto,
    /// The child always gets a copy on base pages.
    Copy,
    /// Always shared, whatever comes of it.
    Share,
}

/// One pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolSettings {
    /// Its pages.
    pub layout: Layout,
    /// Bytes of address space at least; 0 for twice the machine's memory.
    pub bytes: usize,
}

/// Everything that the library is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings<'a> {
    /// malloc and brk.
    pub heap: PoolSettings,
    /// Anonymous private mappings.
    pub anon: PoolSettings,
    /// When pages are short.
    pub fallback: Fallback,
    /// When the program forks.
    pub fork: Fork,
    /// Hugetlb pages may be replaced by base pages while the program uses them. That moves what a device or io_uring has pinned.
    pub demote: bool,
    /// Programs that the program executes are preloaded, too.
    pub inherit: bool,
    /// A file to which each process appends a line of JSON when it ends; "" for none, "-" for standard error.
    pub report: &'a str,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Self {
            heap: PoolSettings::default(),
            anon: PoolSettings::default(),
            fallback: Fallback::default(),
            fork: Fork::default(),
            demote: true,
            inherit: true,
            report: "",
        }
    }
}

/// Has a word for each of its values.
pub trait Word: Copy + PartialEq + 'static {
    /// Each value and its word.
    const WORDS: &'static [(&'static str, Self)];

    /// The value with this word.
    fn parse(word: &str) -> Option<Self> {
        Self::WORDS
            .iter()
            .find(|(own, _)| *own == word)
            .map(|(_, value)| *value)
    }

    /// Its word.
    fn word(self) -> &'static str {
        Self::WORDS
            .iter()
            .find(|(_, own)| *own == self)
            .map_or("", |(word, _)| *word)
    }
}

impl Word for Fallback {
    const WORDS: &'static [(&'static str, Self)] = &[("fail", Self::Fail), ("smaller", Self::Smaller)];
}

impl Word for Fork {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("copy", Self::Copy), ("share", Self::Share)];
}

impl Word for bool {
    const WORDS: &'static [(&'static str, Self)] = &[("yes", true), ("no", false)];
}

/// What one source says. What it does not say is left to the source below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partial {
    /// The heap's pages.
    pub heap: Option<Layout>,
    /// The anonymous pool's pages.
    pub anon: Option<Layout>,
    /// The heap's address space in bytes.
    pub heap_bytes: Option<usize>,
    /// The anonymous pool's address space in bytes.
    pub anon_bytes: Option<usize>,
    /// When pages are short.
    pub fallback: Option<Fallback>,
    /// When the program forks.
    pub fork: Option<Fork>,
    /// Replace hugetlb pages by base pages where the program needs that.
    pub demote: Option<bool>,
    /// For programs executed.
    pub inherit: Option<bool>,
    /// Where reports go.
    pub report: Option<String>,
}

/// A value that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// Which: a variable's name, or a file's field.
    pub name: String,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for SettingError {}

/// The environment variables that a [`Partial`] is read from, in the order of its fields.
pub const VARIABLES: [&str; 9] = [
    "MEGA_MOSAIC_HEAP",
    "MEGA_MOSAIC_ANON",
    "MEGA_MOSAIC_HEAP_SIZE",
    "MEGA_MOSAIC_ANON_SIZE",
    "MEGA_MOSAIC_FALLBACK",
    "MEGA_MOSAIC_FORK",
    "MEGA_MOSAIC_DEMOTE",
    "MEGA_MOSAIC_INHERIT",
    "MEGA_MOSAIC_REPORT",
];

/// Reads a layout and says of which setting, if it makes no sense.
pub fn layout(name: &str, text: &str) -> Result<Layout, SettingError> {
    Layout::parse(text).map_err(|error| SettingError {
        name: name.to_owned(),
        why: error.to_string(),
    })
}

/// Reads a pool's size.
pub fn size(name: &str, text: &str) -> Result<usize, SettingError> {
    match Size::parse(text.trim()) {
        Some(bytes) if (1..=LARGEST_POOL).contains(&bytes) => Ok(bytes),
        _ => Err(SettingError {
            name: name.to_owned(),
            why: format!("'{}' is no size from 1 to {}", text.escape_debug(), Size(LARGEST_POOL)),
        }),
    }
}

/// Reads one of a few words.
pub fn word<T: Word>(name: &str, text: &str) -> Result<T, SettingError> {
    T::parse(text.trim()).ok_or_else(|| {
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
        SettingError {
            name: name.to_owned(),
            why: format!("'{}' is none of: {}", text.escape_debug(), words.join(", ")),
        }
    })
}

impl Partial {
    /// What the environment says. An empty variable says nothing.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingError> {
        let [heap, anon, heap_bytes, anon_bytes, fallback, fork, demote, inherit, report] = VARIABLES;
        let get = |name: &'static str| get(name).filter(|text| !text.is_empty()).map(|text| (name, text));
        Ok(Self {
            heap: get(heap).map(|(n, t)| layout(n, &t)).transpose()?,
            anon: get(anon).map(|(n, t)| layout(n, &t)).transpose()?,
            heap_bytes: get(heap_bytes).map(|(n, t)| size(n, &t)).transpose()?,
            anon_bytes: get(anon_bytes).map(|(n, t)| size(n, &t)).transpose()?,
            fallback: get(fallback).map(|(n, t)| word(n, &t)).transpose()?,
            fork: get(fork).map(|(n, t)| word(n, &t)).transpose()?,
            demote: get(demote).map(|(n, t)| word(n, &t)).transpose()?,
            inherit: get(inherit).map(|(n, t)| word(n, &t)).transpose()?,
            report: get(report).map(|(_, t)| t),
        })
    }

    /// This, and where it says nothing, what `lower` says.
    pub fn over(self, lower: Self) -> Self {
        Self {
            heap: self.heap.or(lower.heap),
            anon: self.anon.or(lower.anon),
            heap_bytes: self.heap_bytes.or(lower.heap_bytes),
            anon_bytes: self.anon_bytes.or(lower.anon_bytes),
            fallback: self.fallback.or(lower.fallback),
            fork: self.fork.or(lower.fork),
            demote: self.demote.or(lower.demote),
            inherit: self.inherit.or(lower.inherit),
            report: self.report.or(lower.report),
        }
    }

    /// With defaults for what no source says.
    pub fn settings(&self) -> Settings<'_> {
        let default = Settings::default();
        let pool = |layout: Option<Layout>, bytes: Option<usize>| PoolSettings {
            layout: layout.unwrap_or_default(),
            bytes: bytes.unwrap_or(0),
        };
        Settings {
            heap: pool(self.heap, self.heap_bytes),
            anon: pool(self.anon, self.anon_bytes),
            fallback: self.fallback.unwrap_or(default.fallback),
            fork: self.fork.unwrap_or(default.fork),
            demote: self.demote.unwrap_or(default.demote),
            inherit: self.inherit.unwrap_or(default.inherit),
            report: self.report.as_deref().unwrap_or(default.report),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Kind;

    fn environment(pairs: &[(&str, &str)]) -> Result<Partial, SettingError> {
        let find = |name: &str| {
            pairs
                .iter()
                .find(|(own, _)| *own == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Partial::from_environment(find)
    }

    #[test]
    fn the_higher_source_wins_field_by_field() {
        let high = environment(&[("MEGA_MOSAIC_HEAP", "2M"), ("MEGA_MOSAIC_FALLBACK", "fail")]).unwrap();
        let low = environment(&[
            ("MEGA_MOSAIC_HEAP", "1G"),
            ("MEGA_MOSAIC_ANON", "2M:thp"),
            ("MEGA_MOSAIC_FALLBACK", "smaller"),
            ("MEGA_MOSAIC_INHERIT", "no"),
            ("MEGA_MOSAIC_ANON_SIZE", "8G"),
            ("MEGA_MOSAIC_REPORT", ""),
        ])
        .unwrap();
        let all = high.over(low);
        let settings = all.settings();
        assert_eq!(settings.heap.layout.kind_at(0), Kind::Huge);
        assert_eq!(settings.anon.layout.kind_at(0), Kind::Thp);
        assert_eq!(
            (settings.fallback, settings.fork, settings.inherit),
            (Fallback::Fail, Fork::Auto, false)
        );
        assert_eq!(
            (settings.heap.bytes, settings.anon.bytes, settings.report),
            (0, 8 << 30, "")
        );
        assert_eq!(Partial::default().settings(), Settings::default());
    }

    #[test]
    fn a_bad_value_names_its_variable() {
        for (name, value, message) in [
            (
                "MEGA_MOSAIC_HEAP",
                "3M",
                "MEGA_MOSAIC_HEAP: interval '3M': no page size that pools have: expected 4K, 2M, 2M:thp or 1G",
            ),
            (
                "MEGA_MOSAIC_FALLBACK",
                "bigger",
                "MEGA_MOSAIC_FALLBACK: 'bigger' is none of: fail, smaller",
            ),
            (
                "MEGA_MOSAIC_FORK",
                "x\n",
                "MEGA_MOSAIC_FORK: 'x\\n' is none of: auto, copy, share",
            ),
            (
                "MEGA_MOSAIC_INHERIT",
                "1",
                "MEGA_MOSAIC_INHERIT: '1' is none of: yes, no",
            ),
            (
                "MEGA_MOSAIC_HEAP_SIZE",
                "0",
                "MEGA_MOSAIC_HEAP_SIZE: '0' is no size from 1 to 16T",
            ),
        ] {
            assert_eq!(environment(&[(name, value)]).unwrap_err().to_string(), message);
        }
    }
}
