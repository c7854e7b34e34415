//! Which mappings there are: private, anonymous, readable and writable.

use mega_range::mappings;
use mega_range::span::Span;

use crate::sys::{self, Result};
use crate::text::{hexadecimal, Text};

/// The mappings that may be acted on, by address.
pub struct Mappings {
    followed: mappings::Mappings,
    /// What the program's first stack lies in: it grows downwards by itself.
    stack: u64,
    has_query: bool,
}

#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    is: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const READABLE: u64 = 0x01;
const WRITABLE: u64 = 0x02;
const SHARED: u64 = 0x08;
const COVERING_OR_NEXT: u64 = 0x10;
/// `PROCMAP_QUERY`, Linux 6.11.
pub const PROCMAP_QUERY: usize = 0xc068_6611;
const _: () = assert!(size_of::<Query>() == 0x68);

impl Query {
    /// Private and anonymous; readable and writable was asked for.
    fn is_eligible(&self) -> bool {
        self.is & SHARED == 0 && self.inode == 0 && self.device == [0, 0]
    }
}

impl Mappings {
    pub const fn new() -> Self {
        Mappings {
            followed: mappings::Mappings::new(),
            stack: 0,
            has_query: false,
        }
    }

    /// Begins anew for a program whose stack has this address.
    pub fn begin(&mut self, stack: u64) {
        self.followed.begin();
        self.stack = stack;
        self.has_query = true;
    }

    pub fn list(&self) -> &[Span] {
        self.followed.list()
    }

    /// Reads them anew from this open `maps`.
    pub fn read(&mut self, maps: i32) -> Result<()> {
        self.followed.clear();
        if self.has_query {
            if self.query(maps).is_ok() {
                return Ok(());
            }
            self.has_query = false;
            self.followed.clear();
        }
        read_text(maps, |mapping| {
            if mapping.is_eligible() {
                self.add(mapping.span);
            }
        })
    }

    /// The mapping that holds this address now, if it may be acted on.
    pub fn at(&self, maps: i32, address: u64) -> Option<Span> {
        if self.has_query {
            let mut query = Query {
                size: size_of::<Query>() as u64,
                flags: READABLE | WRITABLE,
                address,
                ..Query::default()
            };
            // SAFETY: the request takes such a structure; without a size for names it writes nothing else.
            unsafe { sys::ioctl(maps, PROCMAP_QUERY, &raw mut query as usize) }.ok()?;
            return query.is_eligible().then(|| Span::new(query.start, query.end));
        }
        let found = find(maps, address)?;
        found.is_eligible().then_some(found.span)
    }

    /// The mapping that holds this address now, of whatever kind.
    pub fn any_at(&self, maps: i32, address: u64) -> Option<Mapping> {
        if self.has_query {
            query_any(maps, address)
        } else {
            find(maps, address)
        }
    }

    fn add(&mut self, span: Span) {
        if !(span.start..span.end).contains(&self.stack) {
            self.followed.add(span);
        }
    }

    fn query(&mut self, maps: i32) -> Result<()> {
        let mut address = 0;
        loop {
            let mut query = Query {
                size: size_of::<Query>() as u64,
                flags: READABLE | WRITABLE | COVERING_OR_NEXT,
                address,
                ..Query::default()
            };
            // SAFETY: the request takes such a structure; without a size for names it writes nothing else.
            match unsafe { sys::ioctl(maps, PROCMAP_QUERY, &raw mut query as usize) } {
                Ok(_) => {}
                // ENOENT: there is none any more.
                Err(sys::Errno(2)) => return Ok(()),
                Err(error) => return Err(error),
            }
            if query.end <= address {
                return Err(sys::EINVAL);
            }
            address = query.end;
            if query.is_eligible() {
                self.add(Span::new(query.start, query.end));
            }
        }
    }
}

/// A mapping of whatever kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    pub span: Span,
    pub is_readable: bool,
    pub is_writable: bool,
    /// Private and anonymous.
    pub is_own: bool,
}

impl Mapping {
    fn is_eligible(&self) -> bool {
        self.is_own && self.is_readable && self.is_writable
    }
}

fn query_any(maps: i32, address: u64) -> Option<Mapping> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        address,
        ..Query::default()
    };
    // SAFETY: the request takes such a structure; without a size for names it writes nothing else.
    unsafe { sys::ioctl(maps, PROCMAP_QUERY, &raw mut query as usize) }.ok()?;
    Some(Mapping {
        span: Span::new(query.start, query.end),
        is_readable: query.is & READABLE != 0,
        is_writable: query.is & WRITABLE != 0,
        is_own: query.is_eligible(),
    })
}

/// The mapping that holds this address.
fn find(maps: i32, address: u64) -> Option<Mapping> {
    let mut found = None;
    let of = |mapping: Mapping| {
        if mapping.span.start <= address && address < mapping.span.end {
            found = Some(mapping);
        }
    };
    read_text(maps, of).ok()?;
    found
}

/// Reads `maps` line by line.
fn read_text(maps: i32, mut found: impl FnMut(Mapping)) -> Result<()> {
    let mut buffer = [0u8; 4096];
    let mut offset = 0;
    loop {
        let read = sys::pread(maps, &mut buffer, offset)?;
        // Whole lines; the last one may go on in what is read next.
        let Some(last) = read.iter().rposition(|&byte| byte == b'\n') else {
            return Ok(());
        };
        offset = offset.wrapping_add(last as u64 + 1);
        let mut lines = Text(read.get(..last).unwrap_or(&[]));
        while !lines.is_over() {
            if let Some(mapping) = parsed(lines.until(b'\n')) {
                found(mapping);
            }
        }
    }
}

/// A line of `maps`.
fn parsed(line: &[u8]) -> Option<Mapping> {
    let mut words = Text(line);
    let start = hexadecimal(words.until(b'-'))?;
    let end = hexadecimal(words.word())?;
    let flags = words.word();
    let _offset = words.word();
    let device = words.word();
    let inode = words.word();
    Some(Mapping {
        span: Span::new(start, end),
        is_readable: flags.first() == Some(&b'r'),
        is_writable: flags.get(1) == Some(&b'w'),
        is_own: flags.get(3) == Some(&b'p') && device == b"00:00" && inode == b"0",
    })
}
