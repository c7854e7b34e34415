//! The tables of modules in the crate's first pages are true: each module uses only those above it in its table.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of a crate's table, in its order: the links at the beginning of each row.
fn table(source: &Path) -> Vec<String> {
    let front = fs::read_to_string(source.join("lib.rs")).expect("a crate's first page");
    let rows = front.lines().filter_map(|line| line.strip_prefix("//! | [`"));
    let cells = rows.map(|row| row.split(" | ").next().unwrap_or_default());
    let links = cells.flat_map(|cell| {
        cell.split(", [`")
            .map(|link| link.split('`').next().unwrap_or_default())
    });
    links.map(str::to_string).collect()
}

/// The Rust files of a module: `NAME.rs` and all below `NAME/`, without those that hold nothing but tests.
fn files(source: &Path, module: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![source.join(format!("{module}.rs")), source.join(module)];
    while let Some(path) = open.pop() {
        if let Ok(folder) = fs::read_dir(&path) {
            open.extend(folder.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|end| end == "rs") && path.exists() {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_test = name.ends_with("tests") || path.components().any(|part| part.as_os_str() == "tests");
            if !is_test {
                found.push(path);
            }
        }
    }
    found
}

/// The modules that a text names as `crate::MODULE` or in `crate::{…}`, comments and unit tests left out.
fn used(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: Vec<&str> = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let word = |text: &str| {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut found = BTreeSet::new();
    for (at, name) in code.match_indices("crate::") {
        let rest = &code[at + name.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split(';').next().unwrap_or_default();
                found.extend(list.split([',', '{']).map(|item| word(item.trim())));
            }
            None => {
                found.insert(word(rest));
            }
        }
    }
    found
}

fn check(source: &Path) {
    let order = table(source);
    assert!(order.len() >= 5, "the table was read: {order:?}");
    let declared = fs::read_to_string(source.join("lib.rs")).expect("a crate's first page");
    for module in declared.lines().filter_map(|line| line.strip_prefix("pub mod ")) {
        let module = module.trim_end_matches(';');
        assert!(
            order.iter().any(|known| known == module),
            "{module} is not in the table"
        );
    }
    let mut looked_at = 0;
    for (place, module) in order.iter().enumerate() {
        for file in files(source, module) {
            looked_at += 1;
            let text = fs::read_to_string(&file).expect("a source file");
            for other in used(&text) {
                let upwards = order
                    .iter()
                    .position(|known| *known == other)
                    .is_some_and(|at| at > place);
                assert!(
                    !upwards,
                    "{} uses crate::{other}, which is below {module} in the table",
                    file.display()
                );
            }
        }
    }
    assert!(looked_at >= order.len(), "the sources were read");
}

#[test]
fn each_module_of_the_simulator_uses_only_those_above_it() {
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
}

#[test]
fn each_module_of_the_core_uses_only_those_above_it() {
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src"));
}

#[test]
fn an_arrow_upwards_would_be_seen() {
    let text = "use crate::{host::Host, tlb};\nlet x = crate::cost::Costs::default();\n// crate::trace\n#[cfg(test)]\nmod tests { use crate::machine; }";
    let found: Vec<String> = used(text).into_iter().collect();
    assert_eq!(found, ["cost", "host", "tlb"]);
}
