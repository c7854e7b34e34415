//! Recordings: what processes did to their memory, and what a scanner saw of it. The format is described in `docs/trace.md`.
//!
//! ```text
//!   Writer ─► file ─► Reader ─┐
//!   text, Valgrind lackey ────┴─► Source ─┬─► Scans, what a policy is shown
//!                                         ├─► Visits, scans as accesses ─┐
//!                                         └──────────────────────────────┴─► mega_sim::trace: replay on simulated memory, Parquet tables
//! ```
//!
//! All readers stream in bounded memory and treat their input as hostile: an error names the byte, the record and the field, or the
//! line and the column.

// The name by which `testing` calls it, here and in the simulator.
#[cfg(test)]
extern crate self as mega_trace;

mod advice;
mod error;
mod frame;
mod lackey;
mod lines;
mod reader;
#[cfg(test)]
mod reader_tests;
mod record;
mod scans;
#[cfg(test)]
mod testing;
mod text;
mod varint;
mod visits;
mod writer;

pub use advice::Advice;
pub use error::{TraceError, What};
pub use lackey::LackeyReader;
pub use reader::Reader;
pub use record::{Header, Kind, Record, MOST_RUN};
pub use scans::Scans;
pub use text::{write_text, TextReader};
pub use visits::Visits;
pub use writer::Writer;

/// Where records come from.
pub trait Source {
    /// The next record; none at the proper end.
    ///
    /// # Errors
    /// What is wrong with the input, and where. Asking again after an error gives an error or the end.
    fn next_record(&mut self) -> Result<Option<Record>, TraceError>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        (**self).next_record()
    }
}

/// Reads to the end; returns the number of records. Checks a file, and is all that a fuzz target needs:
/// `let _ = Reader::new(data).and_then(|mut r| count(&mut r));`.
///
/// # Errors
/// The first that is wrong.
pub fn count(source: &mut impl Source) -> Result<u64, TraceError> {
    let mut records = 0;
    while source.next_record()?.is_some() {
        records += 1;
    }
    Ok(records)
}

/// Records in memory, for tests.
impl Source for std::vec::IntoIter<Record> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        Ok(self.next())
    }
}
