//! Which mappings the anonymous pool serves, and why not the others.
//!
//! The pool serves anonymous private memory for which no address was asked and that can be used at once. All the rest is the kernel's, as the
//! program gave it, so that it has the kernel's semantics and error numbers to the letter.

/// Linux's numbers, the same on all architectures that the library is for.
pub mod flag {
    #![allow(missing_docs)]
    pub const PROT_READ: i32 = 1;
    pub const PROT_WRITE: i32 = 2;
    pub const PROT_EXEC: i32 = 4;
    pub const PROT_ALL: i32 = 7;
    pub const MAP_SHARED: i32 = 0x01;
    pub const MAP_PRIVATE: i32 = 0x02;
    pub const MAP_TYPE: i32 = 0x0f;
    pub const MAP_FIXED: i32 = 0x10;
    pub const MAP_ANONYMOUS: i32 = 0x20;
    pub const MAP_32BIT: i32 = 0x40;
    pub const MAP_NORESERVE: i32 = 0x4000;
    pub const MAP_POPULATE: i32 = 0x8000;
    pub const MAP_NONBLOCK: i32 = 0x10000;
    pub const MAP_STACK: i32 = 0x20000;
    pub const MAP_HUGETLB: i32 = 0x40000;
    pub const MAP_FIXED_NOREPLACE: i32 = 0x100000;
}
use flag::*;

/// Why a mapping is left to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Of a file, or shared.
    NotPrivate = 0,
    /// At an address that the program chose.
    Address = 1,
    /// Reserved address space (PROT_NONE), or a protection that is none.
    Protection = 2,
    /// For a stack, locked, below 4 GB, growing, or with pages that the program chose.
    Flags = 3,
    /// What the kernel refuses, too.
    Invalid = 4,
    /// The pool has no room for it.
    NoRoom = 5,
    /// The library has no such pool: it could not be reserved, or is turned off.
    NoPool = 6,
}

impl Reason {
    /// Every reason, by its number.
    pub const ALL: [Self; 7] = [
        Self::NotPrivate,
        Self::Address,
        Self::Protection,
        Self::Flags,
        Self::Invalid,
        Self::NoRoom,
        Self::NoPool,
    ];

    /// Its name in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotPrivate => "not_private",
            Self::Address => "address",
            Self::Protection => "protection",
            Self::Flags => "flags",
            Self::Invalid => "invalid",
            Self::NoRoom => "no_room",
            Self::NoPool => "no_pool",
        }
    }
}

/// What a program asks of mmap, apart from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The address that it would like, or 0.
    pub address: usize,
    /// Bytes.
    pub length: usize,
    /// PROT_*.
    pub protection: i32,
    /// MAP_*.
    pub flags: i32,
    /// The file's offset, which must be aligned even where there is no file.
    pub offset: i64,
}

impl Request {
    /// Anonymous and private.
    pub const fn is_private_memory(&self) -> bool {
        self.flags & MAP_TYPE == MAP_PRIVATE && self.flags & MAP_ANONYMOUS != 0
    }

    /// At this address and no other.
    pub const fn is_fixed(&self) -> bool {
        self.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0
    }

    /// The kernel would look at more than the address.
    pub const fn is_valid(&self) -> bool {
        self.length != 0 && self.length <= isize::MAX as usize && self.offset & 0xfff == 0
    }

    /// Memory that a pool can hold, wherever it is to be.
    pub const fn is_plain(&self) -> Result<(), Reason> {
        const KNOWN: i32 =
            MAP_TYPE | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK;
        if !self.is_valid() {
            Err(Reason::Invalid)
        } else if !self.is_private_memory() {
            Err(Reason::NotPrivate)
        } else if self.flags & !KNOWN != 0 {
            Err(Reason::Flags)
        } else if self.protection & !PROT_ALL != 0 || self.protection == 0 {
            Err(Reason::Protection)
        } else {
            Ok(())
        }
    }

    /// Whether a pool serves it, at an address of the pool's choice.
    pub const fn is_served(&self) -> Result<(), Reason> {
        match self.is_plain() {
            Err(reason) => Err(reason),
            Ok(()) if self.is_fixed() || self.address != 0 => Err(Reason::Address),
            Ok(()) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(change: impl Fn(&mut Request)) -> Result<(), Reason> {
        let mut request = Request {
            address: 0,
            length: 5000,
            protection: PROT_READ | PROT_WRITE,
            flags: MAP_PRIVATE | MAP_ANONYMOUS,
            offset: 0,
        };
        change(&mut request);
        request.is_served()
    }

    #[test]
    fn plain_memory_is_served_and_nothing_else() {
        assert_eq!(served(|_| ()), Ok(()));
        assert_eq!(served(|r| r.flags |= MAP_NORESERVE | MAP_POPULATE), Ok(()));
        assert_eq!(served(|r| r.protection = PROT_READ), Ok(()));
        assert_eq!(served(|r| r.flags &= !MAP_ANONYMOUS), Err(Reason::NotPrivate));
        assert_eq!(
            served(|r| r.flags = MAP_SHARED | MAP_ANONYMOUS),
            Err(Reason::NotPrivate)
        );
        assert_eq!(served(|r| r.flags = 3 | MAP_ANONYMOUS), Err(Reason::NotPrivate));
        assert_eq!(served(|r| r.flags |= MAP_FIXED), Err(Reason::Address));
        assert_eq!(served(|r| r.flags |= MAP_FIXED_NOREPLACE), Err(Reason::Address));
        assert_eq!(served(|r| r.address = 0x1000), Err(Reason::Address));
        assert_eq!(served(|r| r.protection = 0), Err(Reason::Protection));
        assert_eq!(served(|r| r.protection = 0x1000003), Err(Reason::Protection));
        for flags in [MAP_STACK, MAP_HUGETLB, 0x100, 0x40, 0x2000] {
            assert_eq!(served(|r| r.flags |= flags), Err(Reason::Flags));
        }
        assert_eq!(served(|r| r.length = 0), Err(Reason::Invalid));
        assert_eq!(served(|r| r.length = usize::MAX), Err(Reason::Invalid));
        assert_eq!(served(|r| r.offset = 1), Err(Reason::Invalid));
    }

    #[test]
    fn reasons_are_numbered_in_order() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(index, reason as usize);
        }
    }
}
