//! The Rust side of mega.ko's interface is laid out as the C header says: sizes, offsets, numbers.

use std::mem::{offset_of, size_of};
use std::process::Command;

use mega_linux::module::uapi;

/// Lines of `name value`, the C expression of each.
fn by_c(expressions: &[&str]) -> Vec<u64> {
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernel/module/uapi/mega.h");
    let prints: String = expressions
        .iter()
        .map(|e| format!("printf(\"%llu\\n\", (unsigned long long)({e}));\n"))
        .collect();
    let program = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"{header}\"\nint main(void) {{\n{prints}return 0; }}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("cc")
        .args(["-Wall", "-Werror", "-Wpadded", "-o"])
        .arg(&binary)
        .arg(&source)
        .output();
    let compiled = compiled.expect("cc");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let output = Command::new(&binary).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect()
}

macro_rules! same_layout {
    ($($c:literal $rust:ident { $($field:ident)* })*) => {{
        let (mut expressions, mut values) = (Vec::new(), Vec::new());
        $(
            expressions.push(concat!("sizeof(struct ", $c, ")"));
            values.push(size_of::<uapi::$rust>() as u64);
            $(
                expressions.push(concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"));
                values.push(offset_of!(uapi::$rust, $field) as u64);
            )*
        )*
        (expressions, values)
    }};
}

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    let (mut expressions, mut values) = same_layout! {
        "mega_info" Info { version base_page_bytes block_pages order_max abilities blocks compact_max blocks_max age_max probe_max
            budget_max_ns reserved }
        "mega_compact_block" CompactBlock { block outcome took_ns in_use moved pinned unmovable }
        "mega_compact" Compact { version flags list count done budget_ns took_ns moved freed tried reserved }
        "mega_block" Block { free listed movable unmovable huge poisoned absent pinned mapped batched zone node flags reserved }
        "mega_blocks" Blocks { version flags first list count done took_ns reserved }
        "mega_region" Region { address mapped accessed young dirty zero write_protected swapped flags }
        "mega_region_map" RegionMap { mapped accessed dirty zero }
        "mega_age" Age { version flags pidfd count start end list maps next done found took_ns lock_max_ns reserved }
        "mega_probe" Probe { version flags order count times budget_ns floor_bytes node done ended failed_ns took_ns reserved }
    };
    for (expression, value) in [
        (
            "offsetof(struct mega_block, type)",
            offset_of!(uapi::Block, r#type) as u64,
        ),
        ("MEGA_UAPI_VERSION", uapi::VERSION.into()),
        ("MEGA_IOC_INFO", uapi::IOC_INFO),
        ("MEGA_IOC_COMPACT", uapi::IOC_COMPACT),
        ("MEGA_IOC_BLOCKS", uapi::IOC_BLOCKS),
        ("MEGA_IOC_AGE", uapi::IOC_AGE),
        ("MEGA_IOC_PROBE", uapi::IOC_PROBE),
        ("MEGA_BLOCK_INTERRUPTED", 13),
        ("MEGA_CAN_YOUNG", uapi::CAN_YOUNG),
        ("MEGA_AGE_TAKE", uapi::AGE_TAKE.into()),
        ("MEGA_REGION_OTHER", uapi::REGION_OTHER.into()),
        ("MEGA_BLOCK_TWO_ZONES", uapi::BLOCK_TWO_ZONES.into()),
        ("MEGA_PROBE_ZERO", uapi::PROBE_ZERO.into()),
        ("MEGA_TYPE_ATOMIC", uapi::TYPE_ATOMIC.into()),
        ("MEGA_TYPE_CMA", uapi::TYPE_CMA.into()),
        ("MEGA_TYPE_ISOLATED", uapi::TYPE_ISOLATED.into()),
    ] {
        expressions.push(expression);
        values.push(value);
    }
    let by_c = by_c(&expressions);
    for ((expression, rust), c) in expressions.iter().zip(&values).zip(&by_c) {
        assert_eq!(rust, c, "{expression}");
    }
    assert_eq!(by_c.len(), values.len());
}

/// The text of a function of a C file, from its name's definition to the closing brace.
fn c_function<'a>(source: &'a str, name: &str) -> &'a str {
    let start = source.find(&format!("{name}(struct mega_walk *walk")).expect(name);
    let rest = &source[start..];
    &rest[..rest.find("\n}\n").expect("its end")]
}

#[test]
fn an_entry_is_read_and_the_table_that_it_leads_to_is_locked_within_one_rcu_section() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernel/module/age_region.c");
    let source = std::fs::read_to_string(path).unwrap();
    // The one try reads the entry first and has no section of its own: it is all inside its caller's.
    let once = c_function(&source, "mega_region_once");
    assert!(!once.contains("rcu_read_"), "{once}");
    let caller = c_function(&source, "void mega_region");
    let at = |text: &str| caller.find(text).unwrap_or_else(|| panic!("no {text} in {caller}"));
    assert!(at("rcu_read_lock()") < at("mega_region_once(") && at("mega_region_once(") < at("rcu_read_unlock()"));
    assert_eq!(source.matches("mega_region_once(").count(), 2, "nobody else calls it");
}
