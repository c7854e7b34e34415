//! What goes wrong in interposed allocators, each by its name, on every kind of pages: a program in C and one in C++ say whether all is well.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use support::{alone, free_pages, library, output, program, settings, under, HugePages};

/// Compiled once; `None` where there is no compiler.
fn compiled(compiler: &str, source: &str) -> Option<PathBuf> {
    let compiler = program(compiler)?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = source.split('.').next().unwrap();
    let target = folder.join(format!("{name}-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let mut command = Command::new(compiler);
    command
        .args(["-O1", "-fno-builtin", "-w", "-o"])
        .arg(&target)
        .arg(source)
        .arg("-lpthread");
    output(&mut command);
    Some(target)
}

fn hazards() -> Option<&'static PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("gcc", "hazards.c")).as_ref()
}

/// On base pages, on transparent huge pages, on hugetlb where it can be had, and on hugetlb that is short.
fn on_every_layout(name: &str) {
    let Some(program) = hazards() else { return };
    let run = |layout: &str| {
        let mut command = Command::new(program);
        under(command.arg(name), &settings(layout, layout, &[]).settings());
        output(&mut command);
    };
    // The program itself is right.
    output(Command::new(program).arg(name));
    run("4K");
    run("2M:thp");
    let _alone = alone();
    if let Some(pages) = HugePages::reserve(96) {
        run("2M");
        run("4K+2M,2M+2M,2M:thp+2M,2M");
        drop(pages);
    }
    if let Some(pages) = HugePages::reserve(3) {
        run("2M");
        drop(pages);
    }
    // Some kernels forget gigantic pages in a forked child.
    if ["fork_from_a_thread", "fork_handlers", "own_stack"].contains(&name) {
        if let Some(_pages) = HugePages::gigantic(2) {
            run("1G+1G");
        }
    }
}

macro_rules! hazard {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            on_every_layout(stringify!($name));
        }
    )*};
}

hazard! {
    first_operation zero_size overflow_sizes alignment errno_preserved family free_by_another_thread thread_exit fork_from_a_thread
    fork_handlers own_stack exit_handlers signals protect_a_part zeroed_again
}

/// The C library's own blocks are on the heap: with too few free pages for parent and child, and on gigantic pages, which no child has.
#[test]
fn a_fork_with_open_streams_and_the_name_service_in_use_neither_hangs_nor_crashes() {
    let Some(program) = hazards() else { return };
    let run = |layout: &str| {
        let mut command = Command::new(program);
        under(
            command.arg("fork_with_streams"),
            &settings(layout, "4K", &[]).settings(),
        );
        output(&mut command);
    };
    output(Command::new(program).arg("fork_with_streams"));
    run("2M:thp");
    let _alone = alone();
    // Few free ones; and more than three times as many.
    for count in [260, 800] {
        if let Some(_pages) = HugePages::reserve(count) {
            run("2M");
        }
    }
    if let Some(_pages) = HugePages::gigantic(1) {
        run("1G");
    }
}

#[test]
fn where_huge_pages_are_short_no_mapping_of_another_thread_is_overwritten() {
    let Some(program) = hazards() else { return };
    let _alone = alone();
    for count in [0, 3] {
        let Some(_pages) = HugePages::reserve(count) else {
            return;
        };
        let mut command = Command::new(program);
        under(command.arg("mappings_of_others"), &settings("4K", "2M", &[]).settings());
        output(&mut command);
    }
}

#[test]
fn with_no_demote_what_would_replace_a_page_in_use_is_refused() {
    let Some(program) = hazards() else { return };
    let _alone = alone();
    let Some(_pages) = HugePages::reserve(10) else { return };
    let mut command = Command::new(program);
    under(
        command.arg("never_replaced"),
        &settings("4K", "2M", &[("DEMOTE", "no")]).settings(),
    );
    output(&mut command);
}

#[test]
fn cplusplus_new_and_delete() {
    let Some(program) = compiled("g++", "new.cc") else {
        return;
    };
    for layout in ["4K", "2M:thp"] {
        let mut command = Command::new(&program);
        under(&mut command, &settings(layout, layout, &[]).settings());
        output(&mut command);
    }
}

#[test]
fn out_of_pool_fails_with_one_line_if_so_chosen() {
    let Some(program) = hazards() else { return };
    let _alone = alone();
    let Some(_pages) = HugePages::reserve(40) else { return };
    let count = free_pages();
    let mut command = Command::new(program);
    under(
        command.arg("out_of_memory"),
        &settings("2M", "2M", &[("FALLBACK", "fail")]).settings(),
    );
    let errors = String::from_utf8(output(&mut command).stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("memomania: no 2M page for offset"), "{errors}");
    assert_eq!(free_pages(), count, "all pages are free again");
}

#[test]
fn a_full_pool_is_left_for_the_kernel() {
    let Some(program) = hazards() else { return };
    let report = tempfile::NamedTempFile::new().unwrap();
    let path = report.path().to_str().unwrap();
    let mut command = Command::new(program);
    let chosen = settings("4K", "4K", &[("ANON_SIZE", "1"), ("HEAP_SIZE", "1"), ("REPORT", path)]);
    under(
        command.args(["signals", "free_by_another_thread", "zeroed_again"]),
        &chosen.settings(),
    );
    output(&mut command);
    let mut command = Command::new("python3");
    under(
        command.args([
            "-c",
            "import mmap; a = [mmap.mmap(-1, 900 << 20, flags=2 | 32) for _ in range(3)]; b = bytes(1200 << 20)",
        ]),
        &chosen.settings(),
    );
    if support::program("python3").is_some() {
        output(&mut command);
        let lines = std::fs::read_to_string(report.path()).unwrap();
        let last = lines.lines().last().unwrap();
        let full = last
            .split("\"no_room\":")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .unwrap();
        assert!(full.parse::<u64>().unwrap() >= 2, "{last}");
    }
}

#[test]
fn settings_that_make_no_sense_stop_the_program_before_it_starts() {
    for value in ["", "2;sai;0;;0;;", "1;sai;0;m1;0;;", "1;s\u{e9}"] {
        let mut command = Command::new("/bin/echo");
        command
            .arg("started")
            .env("LD_PRELOAD", library())
            .env("MEMOMANIA", value);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{value}: {output:?}");
        assert!(output.stdout.is_empty());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.starts_with("memomania: ") && errors.lines().count() == 1,
            "{errors}"
        );
    }
}

#[test]
fn preloaded_by_hand_it_does_no_harm() {
    let mut command = Command::new("/bin/echo");
    command.arg("fine").env("LD_PRELOAD", library()).env_remove("MEMOMANIA");
    assert_eq!(output(&mut command).stdout, b"fine\n");
}

#[test]
fn children_inherit_or_not() {
    let environment = |inherit: &str| {
        let mut command = Command::new("/bin/sh");
        under(
            command.args(["-c", "env"]),
            &settings("4K", "4K", &[("INHERIT", inherit)]).settings(),
        );
        String::from_utf8(output(&mut command).stdout).unwrap()
    };
    let kept = environment("yes");
    assert!(kept.contains("LD_PRELOAD=") && kept.contains("MEMOMANIA="));
    let lost = environment("no");
    let is_ours = |line: &str| line.starts_with("LD_PRELOAD=") || line.starts_with("MEMOMANIA=");
    assert!(!lost.lines().any(is_ours), "{lost}");
}

#[test]
fn what_an_address_space_limit_leaves_is_used() {
    let Some(_) = program("bash") else { return };
    let mut command = Command::new("bash");
    under(
        command.args(["-c", "ulimit -v 2000000; exec sort /proc/self/maps > /dev/null"]),
        &settings("2M:thp", "2M:thp", &[]).settings(),
    );
    output(&mut command);
}
