//! `mega mosaic`: settings, the library, programs that cannot be preloaded, pages reserved and put back, reports. What the library does is
//! tested in crates/memomania.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// The folder with the library that was built with this test.
fn library_folder() -> Option<PathBuf> {
    let mega = Path::new(env!("CARGO_BIN_EXE_mega"));
    let folders = [mega.parent()?.to_owned(), mega.parent()?.join("deps")];
    let age = |folder: &PathBuf| {
        folder
            .join("libmemomania.so")
            .metadata()
            .and_then(|status| status.modified())
            .ok()
    };
    let found = folders
        .into_iter()
        .filter(|folder| age(folder).is_some())
        .max_by_key(age);
    if found.is_none() {
        eprintln!("SKIPPED: libmemomania.so is not built; test the whole workspace");
    }
    found
}

fn mosaic(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
    command.arg("mosaic").args(args);
    if let Some(folder) = library_folder() {
        command.env("MEGA_LIB_DIR", folder);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Fails with one line that has this in it, and starts nothing.
fn refuses(command: &mut Command, expected: &str) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let errors = text(&stderr);
    assert_eq!(status.code(), Some(125), "{command:?}: {errors}");
    assert!(stdout.is_empty(), "{command:?} started");
    assert!(
        errors.contains(expected) && errors.lines().count() == 1,
        "{command:?}: {errors}"
    );
}

#[test]
fn bad_settings_are_one_clear_line_and_nothing_is_started() {
    let Some(_) = library_folder() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.toml");
    std::fs::write(&file, "[heap]\nlayuot = \"2M\"\n").unwrap();
    let file = file.to_str().unwrap();
    for (args, expected) in [
        (
            &["--heap", "3M"][..],
            "--heap: interval '3M': no page size that pools have",
        ),
        (&["--heap", "2M@1M"], "must be multiples of its page size, 2M"),
        (&["--anon", "2M+4M,2M@2M"], "--anon: interval '2M@2M': overlaps"),
        (&["--anon", ""], "--anon: interval '': empty"),
        (&["--heap-size", "big"], "--heap-size: 'big' is no size"),
        (
            &["--heap", "2M@4G+2M", "--heap-size", "1G"],
            "ends past the pool's size",
        ),
        (&["--config", "/nonexistent"], "cannot read /nonexistent"),
        (&["--config", file], "m.toml:2: unknown field `layuot`"),
        (&["--heap", "2M+8000G", "--fallback", "fail"], "pages of 2M are needed,"),
        (
            &["--heap", "2M", "--reserve"],
            "has no length; say how much as in --reserve=2M=1G",
        ),
        (&["--report-file", "/nonexistent/x"], "cannot write /nonexistent/x"),
    ] {
        refuses(mosaic(args).args(["--", "echo", "started"]), expected);
    }
    refuses(
        mosaic(&["--", "echo"]).env("MEGA_MOSAIC_FALLBACK", "never"),
        "MEGA_MOSAIC_FALLBACK: 'never' is none of",
    );
    for args in [
        &["--fallback", "never"][..],
        &["--reserve=4K=1G"],
        &["--reserve=2M"],
        &["--fork", "x"],
    ] {
        assert_eq!(
            mosaic(args).args(["--", "echo"]).output().unwrap().status.code(),
            Some(125),
            "{args:?}"
        );
    }
}

#[test]
fn a_library_that_is_missing_or_foreign_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let run = || {
        let mut command = mosaic(&["--", "echo"]);
        command.env("MEGA_LIB_DIR", folder.path());
        command
    };
    refuses(&mut run(), "libmemomania.so is not in");
    let library = folder.path().join("libmemomania.so");
    std::fs::write(&library, "nonsense").unwrap();
    refuses(&mut run(), "is not a library");
    let mut foreign = std::fs::read("/proc/self/exe").unwrap();
    foreign[18] ^= 0x7f;
    std::fs::write(&library, foreign).unwrap();
    refuses(&mut run(), "is for a different architecture");
}

#[test]
fn programs_that_cannot_be_preloaded_are_said_to_be_so() {
    let Some(_) = library_folder() else { return };
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let own = std::fs::read("/bin/true").unwrap();
    let executable = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let refused = |path: &Path, why: &str| {
        let args = [OsStr::new("--"), path.as_os_str()];
        refuses(mosaic(&[]).args(args), why);
    };
    // Its loader is taken away: what is left is a static program.
    let mut bare = own.clone();
    let count = usize::from(bare[56]);
    for header in 0..count {
        let at = 64 + 56 * header;
        if bare[at] == 3 {
            bare[at] = 0;
        }
    }
    std::fs::write(place("static"), bare).unwrap();
    executable(&place("static"), 0o755);
    refused(&place("static"), "it is statically linked");
    std::fs::write(place("script"), format!("#!{}\n", place("static").display())).unwrap();
    executable(&place("script"), 0o755);
    refused(&place("script"), "it is statically linked");
    let mut other = own.clone();
    other[18] ^= 0x7f;
    std::fs::write(place("other"), other).unwrap();
    executable(&place("other"), 0o755);
    refused(&place("other"), "it is of another architecture");
    std::fs::write(place("setuid"), own).unwrap();
    if std::os::unix::fs::chown(place("setuid"), Some(1234), None).is_ok() {
        executable(&place("setuid"), 0o4755);
        refused(&place("setuid"), "it is setuid or setgid");
    } else {
        eprintln!("SKIPPED: setuid: needs root");
    }
}

#[test]
fn the_status_is_the_commands_own() {
    let Some(_) = library_folder() else { return };
    let status = |command: &str| {
        mosaic(&["--heap", "2M:thp", "--", "sh", "-c", command])
            .status()
            .unwrap()
            .code()
    };
    assert_eq!(status("exit 0"), Some(0));
    assert_eq!(status("exit 3"), Some(3));
    assert_eq!(status("kill -9 $$"), Some(137));
    assert_eq!(
        mosaic(&["--", "/nonexistent"]).output().unwrap().status.code(),
        Some(127)
    );
    assert_eq!(
        mosaic(&["--", "/etc/passwd"]).output().unwrap().status.code(),
        Some(126)
    );
}

#[test]
fn an_existing_preload_is_kept_and_settings_come_from_everywhere() {
    let Some(folder) = library_folder() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "fallback = \"fail\"\n[heap]\nlayout = \"4K\"\n[anon]\nlayout = \"2M:thp\"\n",
    )
    .unwrap();
    let mut command = mosaic(&[
        "--heap",
        "2M:thp+4M",
        "--config",
        file.path().to_str().unwrap(),
        "--",
        "env",
    ]);
    command
        .env("LD_PRELOAD", "libc.so.6")
        .env("MEGA_MOSAIC_FORK", "copy")
        .env("MEGA_MOSAIC_REPORT", "/dev/null");
    let Output { stdout, stderr, .. } = command.output().unwrap();
    let (out, errors) = (text(&stdout), text(&stderr));
    let library = folder.canonicalize().unwrap().join("libmemomania.so");
    assert!(
        out.contains(&format!("LD_PRELOAD={}:libc.so.6\n", library.display())),
        "{out}{errors}"
    );
    assert!(out.contains("MEMOMANIA=1;fci;0;t0+400;0;t0;/dev/null\n"), "{out}");
}

#[test]
fn the_report_says_what_each_process_had() {
    let Some(_) = library_folder() else { return };
    let script =
        "import mmap; m = mmap.mmap(-1, 8 << 20, flags=2 | 32); s = mmap.mmap(-1, 4096); b = bytearray(9 << 20)";
    let output = mosaic(&[
        "--report", "--heap", "2M:thp", "--anon", "4K", "--", "python3", "-c", script,
    ])
    .output();
    let Ok(Output { status, stderr, .. }) = output else {
        return;
    };
    let errors = text(&stderr);
    if status.code() == Some(127) {
        return eprintln!("SKIPPED: python3 is not installed");
    }
    assert!(status.success(), "{errors}");
    assert!(
        errors.contains("heap") && errors.contains("2M:thp") && errors.contains("anon"),
        "{errors}"
    );
    assert!(errors.contains("mappings served; left to the kernel:"), "{errors}");
}

/// A program that says "ready" and lives until its input ends.
fn started(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, output)
}

fn show(pid: u32) -> serde_json::Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
    let Output { status, stdout, stderr } = command.args(["show", "--json", &pid.to_string()]).output().unwrap();
    assert!(status.success(), "{}", text(&stderr));
    let all: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
    all["processes"][0].clone()
}

#[test]
fn show_finds_the_pools_of_a_running_process_and_of_its_child() {
    let Some(_) = library_folder() else { return };
    // A child has pools of its own, and shows what it did after the fork.
    let program = r#"
my $held = "x" x (32 << 20);
pipe(my $in, my $out);
my $child = fork();
if (!$child) { close($out); my $more = "y" x (64 << 20); open(my $f, ">", $ARGV[0]); print $f $$; close($f); <$in>; exit(0) }
close($in);
while (!-s $ARGV[0]) { select(undef, undef, undef, 0.01) }
$| = 1; print "ready\n"; <STDIN>; close($out); wait();
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("child");
    let mut command = mosaic(&["--heap", "2M:thp", "--", "perl", "-e", program]);
    let (mut mega, _output) = started(command.arg(&file));
    let child: u32 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    let (_, fields) = status.rsplit_once(") ").unwrap();
    let parent: u32 = fields.split(' ').nth(1).unwrap().parse().unwrap();
    let used = |seen: &serde_json::Value| seen["memomania"]["pools"]["heap"]["pages"]["2M:thp"]["used_bytes"].as_u64();
    let (before, after) = (used(&show(parent)).unwrap(), used(&show(child)).unwrap());
    assert!(before >= 32 << 20, "{before}");
    assert!(after >= before + (64 << 20), "{after} after {before}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
    let shown = text(&command.args(["show", &child.to_string()]).output().unwrap().stdout);
    assert!(shown.contains("memomania") && shown.contains("2M:thp"), "{shown}");
    assert!(show(std::process::id())["memomania"].is_null());
    drop(mega.stdin.take());
    assert!(mega.wait().unwrap().success());
}

#[test]
fn pages_are_reserved_for_the_run_and_put_back() {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(_) = library_folder() else { return };
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: reserving pages needs root");
    }
    let count = || std::fs::read_to_string(COUNT).unwrap().trim().parse::<u64>().unwrap();
    let before = count();
    let show = format!("cat {COUNT}");
    let run = |args: &[&str]| mosaic(args).args(["--", "sh", "-c", &show]).output().unwrap();
    let Output { status, stdout, stderr } = run(&[
        "--heap",
        "2M+16M",
        "--anon",
        "2M@4M+8M",
        "--reserve",
        "--fallback",
        "fail",
    ]);
    assert!(status.success(), "{}", text(&stderr));
    let free: u64 = text(&stdout).trim().parse().unwrap();
    assert!(free >= 12, "{free}");
    assert_eq!(count(), before);
    let Output { stdout, .. } = run(&["--heap", "2M", "--reserve=2M=10M"]);
    assert!(text(&stdout).trim().parse::<u64>().unwrap() >= 5);
    assert_eq!(count(), before);
    // More than is available: reported, and smaller pages are used for the rest.
    let Output { status, stderr, .. } = run(&["--heap", "2M+8M"]);
    assert!(status.success());
    if before == 0 {
        assert!(text(&stderr).contains("4 pages of 2M are needed, 0 are free: using smaller pages for the rest"));
    }
}
