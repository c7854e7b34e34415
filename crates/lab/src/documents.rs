//! Tables of the documents that are made from the records in `results`, so that a document says what was measured and nothing else.
//!
//! A table stands between `<!-- from results: NAME -->` and `<!-- end -->`; what is around it is written by people.

use thiserror::Error;

const BEGIN: &str = "<!-- from results: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";

/// Why a page cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FillError {
    /// A table without an end.
    #[error("line {line}: {name:?} has no {END}")]
    Open {
        /// Name of the table.
        name: String,
        /// Line of its beginning.
        line: usize,
    },
    /// Nobody makes this table.
    #[error("line {line}: there is no table {name:?}")]
    Unknown {
        /// Name of the table.
        name: String,
        /// Line of its beginning.
        line: usize,
    },
}

/// The page with each of its tables made anew.
///
/// # Errors
/// When a table has no end, or `table` does not make it.
pub fn fill(page: &str, table: impl Fn(&str) -> Option<String>) -> Result<String, FillError> {
    let mut out = String::with_capacity(page.len());
    let mut lines = page.lines().enumerate();
    while let Some((number, text)) = lines.next() {
        out.push_str(text);
        out.push('\n');
        let name = text
            .trim()
            .strip_prefix(BEGIN)
            .and_then(|rest| rest.strip_suffix(CLOSE));
        let Some(name) = name else { continue };
        let (name, line) = (name.to_string(), number + 1);
        if !lines.any(|(_, text)| text.trim() == END) {
            return Err(FillError::Open { name, line });
        }
        let made = table(&name).ok_or(FillError::Unknown { name, line })?;
        out.push_str(&format!("\n{}\n\n{END}\n", made.trim()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_made_anew_and_all_else_stays() {
        let page = "# A\n\n<!-- from results: one -->\n\n| old |\n\n<!-- end -->\n\nwords\n";
        let filled = fill(page, |name| (name == "one").then(|| "| new |\n".to_string())).unwrap();
        assert_eq!(filled, page.replace("old", "new"));
        assert_eq!(
            fill(&filled, |_| Some("| new |".to_string())).unwrap(),
            filled,
            "twice is once"
        );
        assert_eq!(fill("plain\n", |_| None).unwrap(), "plain\n");
    }

    #[test]
    fn a_table_without_end_or_of_an_unknown_name_is_told_with_its_line() {
        let name = "x".to_string();
        let open = fill("a\n<!-- from results: x -->\n", |_| Some(String::new()));
        assert_eq!(
            open,
            Err(FillError::Open {
                name: name.clone(),
                line: 2
            })
        );
        let unknown = fill("<!-- from results: x -->\n<!-- end -->\n", |_| None);
        assert_eq!(unknown, Err(FillError::Unknown { name, line: 1 }));
    }
}
