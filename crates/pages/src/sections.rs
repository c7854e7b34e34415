//! What a page says beside its options: `sections/NAME.txt`, where NAME is the page's, or that of the command above it.
//!
//! ```text
//!   FIELDS                      a title alone in its line
//!   Running text, wrapped as    paragraphs are parted by empty lines
//!   it comes.
//!       mega run -- redis       indented lines stay as they are
//! ```

use std::fs;
use std::path::PathBuf;

use anyhow::{bail, Context, Result};
use clap_mangen::roff::{roman, Roff};

/// The titles that every page has, in this order.
pub const TITLES: [&str; 5] = ["FIELDS", "EXIT STATUS", "EXAMPLES", "COST", "CAVEATS"];

/// A page's sections.
#[derive(Debug)]
pub struct Sections(Vec<(String, Vec<String>)>);

impl Sections {
    /// Those of the page `mega-config-check`, from its file or that of `mega-config`.
    ///
    /// # Errors
    /// No such file; a file with other titles than [`TITLES`], or an empty section.
    pub fn of(page: &str) -> Result<Self> {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/sections"));
        let mut name = page;
        loop {
            let path = folder.join(format!("{name}.txt"));
            if path.exists() {
                let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                return Self::parse(&text).with_context(|| path.display().to_string());
            }
            match name.rsplit_once('-') {
                Some((above, _)) if !["mega", "mega-lab"].contains(&above) => name = above,
                _ => bail!(
                    "crates/pages/sections/{page}.txt is missing: it has {}",
                    TITLES.join(", ")
                ),
            }
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let mut all: Vec<(String, Vec<String>)> = Vec::new();
        for line in text.lines() {
            if TITLES.contains(&line) {
                all.push((line.to_owned(), Vec::new()));
            } else if let Some((_, lines)) = all.last_mut() {
                lines.push(line.trim_end().to_owned());
            } else {
                bail!("'{line}' stands before the first title");
            }
        }
        let titles: Vec<&str> = all.iter().map(|(title, _)| title.as_str()).collect();
        if titles != TITLES {
            bail!("has {titles:?} instead of {TITLES:?}");
        }
        if let Some((title, _)) = all.iter().find(|(_, lines)| lines.iter().all(String::is_empty)) {
            bail!("{title} is empty");
        }
        Ok(Self(all))
    }

    /// As roff.
    pub fn to_roff(&self) -> Roff {
        let mut roff = Roff::new();
        for (title, lines) in &self.0 {
            roff.control("SH", [title.as_str()]);
            let (mut verbatim, mut parted, mut first) = (false, false, true);
            for line in lines {
                if line.is_empty() {
                    parted = true;
                    continue;
                }
                let indented = line.starts_with("    ");
                if verbatim && !indented {
                    roff.control("fi", []);
                    roff.control("RE", []);
                    parted = true;
                }
                if parted && (verbatim || !indented) {
                    // `.PP` right after a title says nothing.
                    roff.control("PP", []);
                }
                if indented && !verbatim {
                    if !first {
                        roff.control("PP", []);
                    }
                    roff.control("RS", ["4"]);
                    roff.control("nf", []);
                }
                (verbatim, parted, first) = (indented, false, false);
                roff.text([roman(if indented { &line[4..] } else { line })]);
            }
            if verbatim {
                roff.control("fi", []);
                roff.control("RE", []);
            }
        }
        roff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_all_titles_in_order_and_something_below_each() {
        let whole = TITLES.map(|title| format!("{title}\nwords\n")).concat();
        assert!(Sections::parse(&whole).is_ok());
        for (bad, why) in [
            (format!("words\n{whole}"), "before the first title"),
            (whole.replace("COST\nwords\n", ""), "instead of"),
            (whole.replace("COST\nwords", "COST\n"), "COST is empty"),
        ] {
            let error = Sections::parse(&bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn examples_stay_as_they_are_and_text_is_no_roff() {
        let whole = TITLES
            .map(|title| format!("{title}\n.words\n\n    mega off  # a\\b\nmore\n"))
            .concat();
        let text = Sections::parse(&whole).unwrap().to_roff().to_roff();
        assert!(text.contains(".nf\nmega off  # a\\\\b\n.fi\n"), "{text}");
        assert!(text.contains("\\&.words"), "{text}");
    }
}
