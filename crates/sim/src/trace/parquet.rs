//! Traces as Parquet tables, for pandas, Polars, DuckDB and the like: one table each for accesses, events of mappings and processes, scans, and
//! regions. `docs/trace.md` has the columns.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use mega_core::observe::{Machine, Observation, ProcessId};
use mega_trace::{Kind, Record, Source, TraceError};

/// Rows that are held before they are written: what bounds memory to about 20 MB a table.
const ROWS: usize = 1 << 17;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// 64 bits, unsigned.
    Number,
    /// 64 bits with a sign.
    Signed,
    /// 32 bits, unsigned.
    Small,
    /// Yes or no.
    Flag,
    /// One of a few words.
    Word,
}

/// One value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    None,
    Number(u64),
    Signed(i64),
    Small(u32),
    Flag(bool),
    Word(&'static str),
}

/// A column's name, what it holds, and whether it may be empty.
type Column = (&'static str, Sort, bool);

/// The columns that all tables but `scans` begin with.
const WHO: [Column; 3] = [
    ("time_ns", Sort::Number, false),
    ("pid", Sort::Small, false),
    ("started", Sort::Number, false),
];

const ACCESSES: &[Column] = &[
    WHO[0],
    WHO[1],
    WHO[2],
    ("kind", Sort::Word, false),
    ("address", Sort::Number, false),
    ("stride_bytes", Sort::Signed, false),
    ("count", Sort::Number, false),
];

const EVENTS: &[Column] = &[
    WHO[0],
    WHO[1],
    WHO[2],
    ("kind", Sort::Word, false),
    ("address", Sort::Number, true),
    ("bytes", Sort::Number, true),
    ("to_address", Sort::Number, true),
    ("to_bytes", Sort::Number, true),
    ("advice", Sort::Word, true),
    ("child", Sort::Small, true),
    ("work_ns", Sort::Number, true),
];

const SCANS: &[Column] = &[
    ("scan", Sort::Number, false),
    WHO[0],
    ("available_bytes", Sort::Number, false),
    ("total_bytes", Sort::Number, false),
    ("free_blocks", Sort::Number, false),
    ("pressure_ppm", Sort::Small, true),
];

const REGIONS: &[Column] = &[
    ("scan", Sort::Number, false),
    WHO[0],
    WHO[1],
    WHO[2],
    ("address", Sort::Number, false),
    ("mapped_pages", Sort::Small, false),
    ("accessed_pages", Sort::Small, false),
    ("dirty_pages", Sort::Small, false),
    ("zero_pages", Sort::Small, true),
    ("huge", Sort::Flag, false),
    ("shared", Sort::Flag, false),
    ("raced", Sort::Flag, false),
    ("aged", Sort::Flag, false),
    ("can_promote", Sort::Flag, false),
    ("can_demote", Sort::Flag, false),
    ("can_age", Sort::Flag, false),
    ("why", Sort::Word, true),
];

/// An export that failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The trace cannot be read on. What came before it is in the tables.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A table cannot be written.
    #[error("table {table}: {why}")]
    Write {
        /// Which.
        table: &'static str,
        /// Why.
        why: String,
    },
}

/// One column's values since the last group of rows.
#[derive(Debug, Default)]
struct Values {
    longs: Vec<i64>,
    ints: Vec<i32>,
    flags: Vec<bool>,
    words: Vec<ByteArray>,
    /// 1 for a value, 0 for none.
    present: Vec<i16>,
}

impl Values {
    fn push(&mut self, cell: Cell) {
        self.present.push(i16::from(cell != Cell::None));
        // Parquet has no unsigned types of its own: the column's annotation says how the bits are meant.
        match cell {
            Cell::None => {}
            Cell::Number(n) => self.longs.push(n as i64),
            Cell::Signed(n) => self.longs.push(n),
            Cell::Small(n) => self.ints.push(n as i32),
            Cell::Flag(b) => self.flags.push(b),
            Cell::Word(w) => self.words.push(ByteArray::from(w)),
        }
    }

    fn write(&mut self, to: &mut ColumnWriter<'_>, may_be_empty: bool) -> Result<(), ParquetError> {
        let present = may_be_empty.then_some(self.present.as_slice());
        match to {
            ColumnWriter::Int64ColumnWriter(to) => to.write_batch(&self.longs, present, None)?,
            ColumnWriter::Int32ColumnWriter(to) => to.write_batch(&self.ints, present, None)?,
            ColumnWriter::BoolColumnWriter(to) => to.write_batch(&self.flags, present, None)?,
            ColumnWriter::ByteArrayColumnWriter(to) => to.write_batch(&self.words, present, None)?,
            _ => return Err(ParquetError::General("a column of another type".into())),
        };
        self.longs.clear();
        self.ints.clear();
        self.flags.clear();
        self.words.clear();
        self.present.clear();
        Ok(())
    }
}

/// The columns as Parquet's own schema language has them.
fn schema(name: &str, columns: &[Column]) -> String {
    let fields = columns.iter().map(|(name, sort, may_be_empty)| {
        let of = match sort {
            Sort::Number => format!("int64 {name} (INTEGER(64,false))"),
            Sort::Signed => format!("int64 {name}"),
            Sort::Small => format!("int32 {name} (INTEGER(32,false))"),
            Sort::Flag => format!("boolean {name}"),
            Sort::Word => format!("binary {name} (STRING)"),
        };
        let repetition = if *may_be_empty { "optional" } else { "required" };
        format!("  {repetition} {of};\n")
    });
    format!("message {name} {{\n{}}}", fields.collect::<String>())
}

/// One table under way. Its file is made with its first row.
struct Table<W: Write + Send> {
    name: &'static str,
    columns: &'static [Column],
    values: Vec<Values>,
    held: usize,
    rows: u64,
    writer: Option<SerializedFileWriter<W>>,
}

impl<W: Write + Send> Table<W> {
    fn new(name: &'static str, columns: &'static [Column]) -> Self {
        Self {
            name,
            columns,
            values: columns.iter().map(|_| Values::default()).collect(),
            held: 0,
            rows: 0,
            writer: None,
        }
    }

    fn wrong(&self, why: impl ToString) -> ExportError {
        ExportError::Write {
            table: self.name,
            why: why.to_string(),
        }
    }

    fn push(&mut self, row: &[Cell], open: &mut Open<'_, W>) -> Result<(), ExportError> {
        debug_assert_eq!(row.len(), self.columns.len());
        for (values, cell) in self.values.iter_mut().zip(row) {
            values.push(*cell);
        }
        self.held += 1;
        self.rows += 1;
        if self.held >= ROWS {
            self.flush(open)?;
        }
        Ok(())
    }

    fn flush(&mut self, open: &mut Open<'_, W>) -> Result<(), ExportError> {
        if self.held == 0 {
            return Ok(());
        }
        self.held = 0;
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let file = open(self.name).map_err(|e| self.wrong(e))?;
                let schema = parse_message_type(&schema(self.name, self.columns)).map_err(|e| self.wrong(e))?;
                SerializedFileWriter::new(file, Arc::new(schema), properties()).map_err(|e| self.wrong(e))?
            }
        };
        self.write_group(&mut writer).map_err(|e| self.wrong(e))?;
        self.writer = Some(writer);
        Ok(())
    }

    fn write_group(&mut self, writer: &mut SerializedFileWriter<W>) -> Result<(), ParquetError> {
        let mut group = writer.next_row_group()?;
        for (values, (_, _, may_be_empty)) in self.values.iter_mut().zip(self.columns) {
            let mut column = group
                .next_column()?
                .ok_or_else(|| ParquetError::General("a column too few".into()))?;
            values.write(column.untyped(), *may_be_empty)?;
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    fn finish(mut self, open: &mut Open<'_, W>) -> Result<(&'static str, u64), ExportError> {
        self.flush(open)?;
        let (name, rows) = (self.name, self.rows);
        if let Some(writer) = self.writer.take() {
            let file = writer.into_inner().map_err(|e| self.wrong(e));
            file?.flush().map_err(|e| self.wrong(e))?;
        }
        Ok((name, rows))
    }
}

fn properties() -> WriterPropertiesPtr {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    Arc::new(WriterProperties::builder().set_compression(zstd).build())
}

/// Makes the file of a table.
type Open<'a, W> = dyn FnMut(&'static str) -> std::io::Result<W> + 'a;

/// Writes the records of a trace to tables, each to the file that `open` makes for its name when its first row comes: `accesses`, `events`,
/// `scans`, `regions`. Returns the names and rows of those that have any.
///
/// # Errors
/// When the trace cannot be read on (the tables are whole up to there) or a table cannot be written.
pub fn export<W: Write + Send>(
    source: &mut impl Source,
    open: &mut Open<'_, W>,
) -> Result<Vec<(&'static str, u64)>, ExportError> {
    let mut tables = Tables {
        accesses: Table::new("accesses", ACCESSES),
        events: Table::new("events", EVENTS),
        scans: Table::new("scans", SCANS),
        regions: Table::new("regions", REGIONS),
        time_ns: 0,
        process: ProcessId { pid: 0, started: 0 },
    };
    let end = loop {
        match source.next_record() {
            Ok(Some(record)) => tables.add(&record, open)?,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let all = [tables.accesses, tables.events, tables.scans, tables.regions];
    let written = all
        .into_iter()
        .map(|table| table.finish(open))
        .collect::<Result<Vec<_>, _>>()?;
    end?;
    Ok(written.into_iter().filter(|(_, rows)| *rows > 0).collect())
}

struct Tables<W: Write + Send> {
    accesses: Table<W>,
    events: Table<W>,
    scans: Table<W>,
    regions: Table<W>,
    time_ns: u64,
    process: ProcessId,
}

fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Update => "update",
    }
}

impl<W: Write + Send> Tables<W> {
    fn who(&self) -> [Cell; 3] {
        [
            Cell::Number(self.time_ns),
            Cell::Small(self.process.pid),
            Cell::Number(self.process.started),
        ]
    }

    fn add(&mut self, record: &Record, open: &mut Open<'_, W>) -> Result<(), ExportError> {
        let number = Cell::Number;
        let none = Cell::None;
        match *record {
            Record::Time(ns) => self.time_ns = ns,
            Record::Process(id) => self.process = id,
            Record::Touch { address, kind } => self.access(kind, address, 0, 1, open)?,
            Record::Run {
                address,
                stride,
                count,
                kind,
            } => self.access(kind, address, stride, count, open)?,
            Record::Map { address, bytes } => self.event(
                "map",
                [number(address), number(bytes), none, none, none, none, none],
                open,
            )?,
            Record::Unmap { address, bytes } => self.event(
                "unmap",
                [number(address), number(bytes), none, none, none, none, none],
                open,
            )?,
            Record::Remap {
                address,
                bytes,
                to,
                to_bytes,
            } => {
                let cells = [address, bytes, to, to_bytes].map(number);
                self.event(
                    "remap",
                    [cells[0], cells[1], cells[2], cells[3], none, none, none],
                    open,
                )?
            }
            Record::Advise { address, bytes, advice } => {
                let advice = Cell::Word(advice.word());
                self.event(
                    "advise",
                    [number(address), number(bytes), none, none, advice, none, none],
                    open,
                )?
            }
            Record::Fork(child) => {
                self.event("fork", [none, none, none, none, none, Cell::Small(child), none], open)?
            }
            Record::Exit(child) => {
                self.event("exit", [none, none, none, none, none, Cell::Small(child), none], open)?
            }
            Record::Work(ns) => self.event("work", [none, none, none, none, none, none, number(ns)], open)?,
            Record::Scan(machine) => self.scan(&machine, open)?,
            Record::Region(seen) => self.region(&seen, open)?,
        }
        Ok(())
    }

    fn access(
        &mut self,
        kind: Kind,
        address: u64,
        stride: i64,
        count: u64,
        open: &mut Open<'_, W>,
    ) -> Result<(), ExportError> {
        let [time, pid, started] = self.who();
        let kind = Cell::Word(kind_word(kind));
        let row = [
            time,
            pid,
            started,
            kind,
            Cell::Number(address),
            Cell::Signed(stride),
            Cell::Number(count),
        ];
        self.accesses.push(&row, open)
    }

    fn event(&mut self, kind: &'static str, rest: [Cell; 7], open: &mut Open<'_, W>) -> Result<(), ExportError> {
        let [time, pid, started] = self.who();
        let [a, b, c, d, e, f, g] = rest;
        let row = [time, pid, started, Cell::Word(kind), a, b, c, d, e, f, g];
        self.events.push(&row, open)
    }

    fn scan(&mut self, m: &Machine, open: &mut Open<'_, W>) -> Result<(), ExportError> {
        let row = [
            Cell::Number(self.scans.rows),
            Cell::Number(self.time_ns),
            Cell::Number(m.available_bytes.0),
            Cell::Number(m.total_bytes.0),
            Cell::Number(m.free_blocks.0),
            m.pressure.map_or(Cell::None, |p| Cell::Small(p.as_millionths())),
        ];
        self.scans.push(&row, open)
    }

    fn region(&mut self, o: &Observation, open: &mut Open<'_, W>) -> Result<(), ExportError> {
        let [time, pid, started] = self.who();
        let row = [
            // Of the scan that it belongs to; one without a scan before it is of the first.
            Cell::Number(self.scans.rows.saturating_sub(1)),
            time,
            pid,
            started,
            Cell::Number(o.region.address()),
            Cell::Small(o.mapped.0),
            Cell::Small(o.accessed.0),
            Cell::Small(o.dirty.0),
            o.zero.map_or(Cell::None, |zero| Cell::Small(zero.0)),
            Cell::Flag(o.huge),
            Cell::Flag(o.shared),
            Cell::Flag(o.raced),
            Cell::Flag(o.aged),
            Cell::Flag(o.can.promote),
            Cell::Flag(o.can.demote),
            Cell::Flag(o.can.age),
            o.can.why.map_or(Cell::None, |why| Cell::Word(why.word())),
        ];
        self.regions.push(&row, open)
    }
}
