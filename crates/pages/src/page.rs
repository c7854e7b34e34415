//! A man page for a command and each of its subcommands.

use std::io::Write;

use anyhow::Result;
use clap::Command;
use clap_mangen::roff::{roman, Roff};
use clap_mangen::Man;

use crate::sections::Sections;

/// All pages of a command: `mega-run.1` and its text.
///
/// # Errors
/// A command without its file in `sections/`.
pub fn pages(command: &Command) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    add(command, command.get_name(), None, &mut all)?;
    Ok(all)
}

fn add(command: &Command, page: &str, above: Option<&str>, all: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let below: Vec<_> = command.get_subcommands().filter(|part| !part.is_hide_set()).collect();
    let name = |part: &Command| format!("{page}-{}", part.get_name());
    let others = above
        .map(str::to_owned)
        .into_iter()
        .chain(below.iter().map(|part| name(part)));
    all.push((format!("{page}.1"), text(command, page, others.collect())?));
    for part in &below {
        add(part, &name(part), Some(page), all)?;
    }
    Ok(())
}

/// Without line breaks beside vertical space, which clap_mangen writes between paragraphs and mandoc warns of.
fn without_idle_breaks(roff: &str) -> String {
    let lines: Vec<&str> = roff.lines().collect();
    let is_space = |at: Option<usize>| {
        at.and_then(|at| lines.get(at))
            .is_some_and(|line| line.is_empty() || line.starts_with(".sp"))
    };
    let is_idle = |at: usize| lines[at] == ".br" && (is_space(at.checked_sub(1)) || is_space(Some(at + 1)));
    let kept = (0..lines.len())
        .filter(|at| !is_idle(*at))
        .map(|at| format!("{}\n", lines[at]));
    kept.collect()
}

/// One page, in the order of man-pages(7).
fn text(command: &Command, page: &str, others: Vec<String>) -> Result<Vec<u8>> {
    // Long helps are for `--help`; here each command of a group has its own page.
    let man = Man::new(command.clone().display_name(page.to_owned()));
    let mut out = Vec::new();
    // No date: a page is made from the code, and packages are to be the same each time.
    let (title, version) = (page.to_uppercase(), env!("CARGO_PKG_VERSION"));
    writeln!(out, ".TH \"{title}\" 1 \"\" \"MEGA {version}\" \"User Commands\"")?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if let Some(notes) = command.get_after_help() {
        let mut roff = Roff::new();
        roff.control("SH", ["NOTES"]);
        roff.control("nf", []);
        // An empty line would be a warning.
        for line in notes.to_string().lines() {
            match line {
                "" => roff.control("sp", []),
                line => roff.text([roman(line)]),
            };
        }
        roff.control("fi", []);
        out.extend(roff.to_roff().into_bytes());
    }
    let mut options = Vec::new();
    man.render_options_section(&mut options)?;
    out.extend(without_idle_breaks(&String::from_utf8(options)?).into_bytes());
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    out.extend(Sections::of(page)?.to_roff().to_roff().into_bytes());
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let others: Vec<_> = others.into_iter().map(|other| format!("{other}(1)")).collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!("{}; ", others.join(", "))
    };
    roff.text([roman(format!("{others}/usr/share/doc/mega"))]);
    out.extend(roff.to_roff().into_bytes());
    Ok(out)
}
