//! Traces of texts.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result};
use mega_cli::exit::{tell, Failure};
use mega_cli::recording::{cannot_write, create, header, size_of};
use mega_trace::{LackeyReader, Source, TextReader, Writer};

/// Makes a trace of a text.
pub fn import(format: &Path, from: &Path, to: &Path, quiet: bool) -> Result<()> {
    let wrong = || {
        let format = format.display();
        Failure::usage(format!("--import of '{format}': the formats are lackey and text"))
    };
    let read = || File::open(from).with_context(|| format!("cannot read {}", from.display()));
    let mut source: Box<dyn Source> = match format.to_str() {
        Some("lackey") => Box::new(LackeyReader::new(BufReader::new(read()?), false)),
        Some("text") => Box::new(TextReader::new(BufReader::new(read()?))),
        _ => return Err(wrong()),
    };
    let cannot = || cannot_write(to);
    let about = header(format!("{} {}", format.display(), from.display()), 0);
    let mut writer = Writer::new(create(to)?, &about).with_context(cannot)?;
    // What was read before an error is a whole trace too.
    let end = loop {
        match source.next_record() {
            Ok(Some(record)) => writer.write(&record).with_context(cannot)?,
            end => break end,
        }
    };
    let records = writer.records();
    writer.finish().with_context(cannot)?;
    end.with_context(|| from.display().to_string())?;
    if !quiet {
        tell(&format!("mega: {}: {records} records, {}", to.display(), size_of(to)));
    }
    Ok(())
}
