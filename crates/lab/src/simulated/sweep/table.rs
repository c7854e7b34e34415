//! A table of named columns, or a piece of a long one, and how it is written as CSV. Other formats take the same pieces: a piece is what a row group is
//! to Parquet.

use std::io::{self, Write};

/// The values of a column; none where there is no value.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Text.
    Text(Vec<Option<String>>),
    /// Whole numbers: counts, bytes, seeds.
    Whole(Vec<Option<u64>>),
    /// Any numbers.
    Number(Vec<Option<f64>>),
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name; the unit last in it.
    pub name: String,
    /// As many as the table has rows.
    pub values: Values,
}

/// Columns of one length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// From the left.
    pub columns: Vec<Column>,
}

impl Column {
    /// A column.
    #[must_use]
    pub fn new(name: impl Into<String>, values: Values) -> Self {
        Self {
            name: name.into(),
            values,
        }
    }

    fn len(&self) -> usize {
        match &self.values {
            Values::Text(values) => values.len(),
            Values::Whole(values) => values.len(),
            Values::Number(values) => values.len(),
        }
    }

    /// A value as a field of CSV. Numbers in their shortest form that reads back the same.
    fn field(&self, row: usize) -> String {
        fn of<T>(values: &[Option<T>], row: usize, show: impl Fn(&T) -> String) -> String {
            values.get(row).and_then(Option::as_ref).map_or(String::new(), show)
        }
        match &self.values {
            Values::Text(values) => of(values, row, |text| quoted(text)),
            Values::Whole(values) => of(values, row, u64::to_string),
            Values::Number(values) => of(values, row, f64::to_string),
        }
    }
}

/// A field as RFC 4180 has it: in quotes, its own doubled, where it needs them. An empty text is in quotes, to be told from none.
fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && !text.contains([',', '"', '\n', '\r']);
    if plain {
        text.to_string()
    } else {
        format!("\"{}\"", text.replace('"', "\"\""))
    }
}

impl Table {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.iter().map(Column::len).max().unwrap_or(0)
    }

    /// Writes the names of the columns as a line of CSV.
    ///
    /// # Errors
    /// What writing says.
    pub fn write_csv_header(&self, to: &mut impl Write) -> io::Result<()> {
        let names: Vec<String> = self.columns.iter().map(|column| quoted(&column.name)).collect();
        writeln!(to, "{}", names.join(","))
    }

    /// Writes the rows as lines of CSV.
    ///
    /// # Errors
    /// What writing says.
    pub fn write_csv(&self, to: &mut impl Write) -> io::Result<()> {
        for row in 0..self.rows() {
            let fields: Vec<String> = self.columns.iter().map(|column| column.field(row)).collect();
            writeln!(to, "{}", fields.join(","))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be_and_numbers_read_back() {
        let texts = ["plain", "a,b", "say \"x\"", "two\nlines", "", "é"];
        let table = Table {
            columns: vec![
                Column::new(
                    "what, exactly",
                    Values::Text(
                        texts
                            .iter()
                            .map(|text| Some((*text).to_string()))
                            .chain([None])
                            .collect(),
                    ),
                ),
                Column::new("n", Values::Whole([0, 1, u64::MAX].map(Some).to_vec())),
                Column::new(
                    "x",
                    Values::Number([Some(0.1), None, Some(1e21), Some(3.0), Some(-0.5)].to_vec()),
                ),
            ],
        };
        let mut csv = Vec::new();
        table.write_csv_header(&mut csv).unwrap();
        table.write_csv(&mut csv).unwrap();
        let expected = "\"what, exactly\",n,x\nplain,0,0.1\n\"a,b\",1,\n\"say \"\"x\"\"\",18446744073709551615,\
                        1000000000000000000000\n\"two\nlines\",,3\n\"\",,-0.5\né,,\n,,\n";
        assert_eq!(String::from_utf8(csv).unwrap(), expected);
    }
}
