//! The documents: links and paths in them lead somewhere, the front page fits a screen, the indexes are complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Widest line of a page; tables and code may be wider.
const COLUMNS: usize = 120;
/// The front page's limits: columns of every line, lines of the first screen, lines in all.
const FRONT_COLUMNS: usize = 100;
const FIRST_SCREEN: usize = 60;
const FRONT_LINES: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository is there")
}

/// Every file below a folder with one of these extensions, without what is built or hidden.
fn files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder can be read")
        .map(|entry| entry.expect("the entry can be read").path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "mega-results", "node_modules"].contains(&name) {
                files(&path, extensions, found);
            }
        } else if extensions.iter().any(|wanted| name.ends_with(wanted)) {
            found.push(path);
        }
    }
}

fn pages() -> Vec<(PathBuf, String)> {
    let root = root();
    let mut found = Vec::new();
    for folder in ["docs", "kernel", "packaging", "crates"] {
        files(&root.join(folder), &[".md"], &mut found);
    }
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ] {
        found.push(root.join(name));
    }
    found
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path, text)
        })
        .collect()
}

/// The lines of a page that are not code, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut code = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code && !line.starts_with("    ") {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// What a heading is called in a link.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .into_iter()
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| anchor(line))
        .collect()
}

/// The targets of the links in a line, code spans left out.
fn links(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_string())
        .collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for (path, text) in pages() {
        for (number, line) in prose(&text) {
            for target in links(line) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (file, part) = target.split_once('#').unwrap_or((&target, ""));
                let to = if file.is_empty() {
                    path.clone()
                } else {
                    path.parent().expect("a page lies in a folder").join(file)
                };
                let there = if part.is_empty() {
                    to.exists()
                } else {
                    fs::read_to_string(&to).is_ok_and(|text| anchors(&text).contains(part))
                };
                if !there {
                    wrong.push(format!("{}:{number}: {target}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn every_path_that_a_page_names_is_there() {
    let root = root();
    let rooms = ["crates/", "docs/", "kernel/", "tests/", "packaging/", ".githooks/"];
    let mut wrong = Vec::new();
    for (path, text) in pages() {
        if path.ends_with("CHANGELOG.md") {
            continue;
        }
        for (number, line) in prose(&text) {
            for span in line.split('`').skip(1).step_by(2) {
                let named = span.split_whitespace().next().unwrap_or("");
                let placeholder = named.chars().any(|c| "*<>{}…$".contains(c))
                    || named
                        .split(['/', '.', '-'])
                        .any(|part| part == "NAME" || part == "NNNN");
                if rooms.iter().any(|room| named.starts_with(room)) && !placeholder && !root.join(named).exists() {
                    wrong.push(format!("{}:{number}: {named}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "paths that are not there:\n{}", wrong.join("\n"));
}

#[test]
fn the_front_page_keeps_its_limits() {
    let text = fs::read_to_string(root().join("README.md")).expect("README.md");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= FRONT_LINES, "README.md has {} lines", lines.len());
    for (number, line) in lines.iter().enumerate() {
        let columns = line.chars().count();
        assert!(columns <= FRONT_COLUMNS, "README.md:{}: {columns} columns", number + 1);
    }
    let screen = lines
        .iter()
        .position(|line| line.starts_with("## "))
        .unwrap_or(lines.len());
    assert!(
        screen <= FIRST_SCREEN,
        "the first screen of README.md has {screen} lines"
    );
    let first = lines[..screen].join("\n");
    for said in [
        "make demo",
        "make test",
        "mega doctor",
        "mega run",
        "mega off",
        "**Use it when**",
        "**Do not use it when**",
    ] {
        assert!(
            first.contains(said),
            "the first screen of README.md does not say: {said}"
        );
    }
}

#[test]
fn prose_is_no_wider_than_a_page() {
    let mut wrong = Vec::new();
    for (path, text) in pages() {
        for (number, line) in prose(&text) {
            let columns = line.chars().count();
            if columns > COLUMNS && !line.starts_with('|') {
                wrong.push(format!("{}:{number}: {columns} columns", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "lines that are too wide:\n{}", wrong.join("\n"));
}

#[test]
fn the_indexes_name_every_page() {
    for folder in ["docs", "docs/adr"] {
        let folder = root().join(folder);
        let index = fs::read_to_string(folder.join("README.md")).expect("the folder has an index");
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let name = entry.expect("the entry can be read").file_name();
            let name = name.to_str().expect("names are text");
            if name.ends_with(".md") && name != "README.md" {
                assert!(
                    index.contains(&format!("({name})")),
                    "{name} is not in {}/README.md",
                    folder.display()
                );
            }
        }
    }
}

#[test]
fn nothing_cites_a_document_that_is_not_in_the_repository() {
    let root = root();
    let outside: Vec<String> = ["FACTS", "PAPERS", "AUTO", "DESIGN", "RESERVATIONS"]
        .iter()
        .map(|name| format!("{name}.md"))
        .collect();
    let mut sources = Vec::new();
    for folder in ["crates", "docs", "kernel", "packaging", "tests"] {
        files(
            &root.join(folder),
            &[".rs", ".md", ".c", ".h", ".toml", ".sh"],
            &mut sources,
        );
    }
    let mut wrong = Vec::new();
    for path in sources {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            if outside.iter().any(|name| line.contains(name)) {
                wrong.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "documents that are not here:\n{}", wrong.join("\n"));
}
