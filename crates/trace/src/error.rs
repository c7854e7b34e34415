//! What is wrong with an input, and where.

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// The input ends in it.
    #[error("the input ends here")]
    Truncated,
    /// The bytes are not those that were written.
    #[error("checksum {found:#010x}, expected {expected:#010x}: the bytes changed")]
    Checksum {
        /// Of the bytes that are there.
        found: u32,
        /// The one that was written.
        expected: u32,
    },
    /// A number that the format does not allow there.
    #[error("{value} is more than {most}")]
    TooLarge {
        /// The number.
        value: u64,
        /// The largest allowed.
        most: u64,
    },
    /// A number of 64 bits has more of them.
    #[error("a number of more than 64 bits")]
    Overlong,
    /// A value without a meaning.
    #[error("{0:#x} has no meaning here")]
    Unknown(u64),
    /// Text that is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// Zstandard data that makes no sense, or of another length than was said.
    #[error("not the compressed data of {0} bytes")]
    NotCompressed(u64),
    /// Bytes after the end.
    #[error("bytes follow the end")]
    Trailing,
    /// The number of records is not the one that was written.
    #[error("{found} records, expected {expected}")]
    Count {
        /// Records that are there.
        found: u64,
        /// The number that was written.
        expected: u64,
    },
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Io(String),
}

/// An input that is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// In the binary format.
    #[error("trace, byte {offset}, record {record}, {field}: {what}")]
    Binary {
        /// Offset in the file of the frame or field, in bytes.
        offset: u64,
        /// Number of the record, from 0; the next one for frames.
        record: u64,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        what: What,
    },
    /// In one of the text formats.
    #[error("line {line}, column {column}: expected {expected}, found {found:?}")]
    Text {
        /// Number of the line, from 1.
        line: u64,
        /// Byte in the line, from 1.
        column: usize,
        /// What should be there.
        expected: &'static str,
        /// What is there, 40 characters at most.
        found: String,
    },
    /// A replay that cannot go on.
    #[error("trace, record {record}: {what}")]
    Replay {
        /// Number of the record, from 0.
        record: u64,
        /// Why.
        what: String,
    },
}

impl TraceError {
    pub(super) fn text(line: u64, column: usize, expected: &'static str, found: &str) -> Self {
        Self::Text {
            line,
            column,
            expected,
            found: found.chars().take(40).collect(),
        }
    }
}
