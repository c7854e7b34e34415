//! Settings as a TOML file.
//!
//! ```toml
//! fallback = "smaller"     # or "fail"
//! fork = "auto"            # or "copy", "share"
//! demote = true            # replace hugetlb pages by base pages where the program needs that
//! inherit = true           # preload programs that the program executes, too
//! report = "mosaic.jsonl"  # each process appends a line when it ends
//!
//! [heap]                   # malloc and brk
//! layout = "1G@0,2M"
//! size = "64G"             # address space; twice the memory if not said
//!
//! [anon]                   # anonymous private mappings
//! layout = "2M:thp"
//! ```

use serde::Deserialize;

use crate::settings::{layout, size, word, Partial, SettingError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    heap: Option<Pool>,
    anon: Option<Pool>,
    fallback: Option<String>,
    fork: Option<String>,
    demote: Option<bool>,
    inherit: Option<bool>,
    report: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    layout: Option<String>,
    size: Option<String>,
}

/// Reads the text of a file. The error is one line, with the file's line where it is known; `name` is the file's.
pub fn parse(name: &str, text: &str) -> Result<Partial, SettingError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        SettingError {
            name: line.map_or(name.to_owned(), |line| format!("{name}:{line}")),
            why: error.message().lines().collect::<Vec<_>>().join("; "),
        }
    })?;
    let field = |field: &str| format!("{name}: {field}");
    let pool = |pool: Option<Pool>, table: &str| -> Result<_, SettingError> {
        let Some(pool) = pool else { return Ok((None, None)) };
        let layout = pool
            .layout
            .map(|text| layout(&field(&format!("{table}.layout")), &text));
        let bytes = pool.size.map(|text| size(&field(&format!("{table}.size")), &text));
        Ok((layout.transpose()?, bytes.transpose()?))
    };
    let (heap, heap_bytes) = pool(file.heap, "heap")?;
    let (anon, anon_bytes) = pool(file.anon, "anon")?;
    Ok(Partial {
        heap,
        anon,
        heap_bytes,
        anon_bytes,
        fallback: file.fallback.map(|text| word(&field("fallback"), &text)).transpose()?,
        fork: file.fork.map(|text| word(&field("fork"), &text)).transpose()?,
        demote: file.demote,
        inherit: file.inherit,
        report: file.report,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Kind;
    use crate::settings::{Fallback, Fork};

    #[test]
    fn every_field_is_read() {
        let text = "fallback = \"fail\"\nfork = \"copy\"\ninherit = false\nreport = \"r\"\n\
                    [heap]\nlayout = \"1G@0,2M\"\nsize = \"64G\"\n[anon]\nlayout = \"2M:thp\"\n";
        let partial = parse("m.toml", text).unwrap();
        let settings = partial.settings();
        assert_eq!(settings.heap.layout.kind_at(1 << 30), Kind::Huge);
        assert_eq!(settings.heap.bytes, 64 << 30);
        assert_eq!(settings.anon.layout.kind_at(0), Kind::Thp);
        assert_eq!((settings.fallback, settings.fork), (Fallback::Fail, Fork::Copy));
        assert_eq!((settings.inherit, settings.report), (false, "r"));
        assert_eq!(parse("m.toml", "").unwrap(), Partial::default());
    }

    #[test]
    fn errors_are_one_line_with_file_and_place() {
        for (text, expected) in [
            ("heap = 3", "m.toml:1: invalid type: integer `3`, expected struct Pool"),
            ("\nhaep = \"2M\"", "m.toml:2: unknown field `haep`"),
            ("[heap]\nlayout = \"2M\"\nwidth = 1", "m.toml:3: unknown field `width`"),
            (
                "[heap]\nlayout = \"5M\"",
                "m.toml: heap.layout: interval '5M': no page size",
            ),
            ("[anon]\nsize = \"big\"", "m.toml: anon.size: 'big' is no size"),
            ("fallback = \"x\"", "m.toml: fallback: 'x' is none of: fail, smaller"),
            ("inherit = \"yes\"", "m.toml:1: invalid type: string"),
            ("[heap", "m.toml:1: "),
        ] {
            let error = parse("m.toml", text).unwrap_err().to_string();
            assert!(error.starts_with(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
