//! What is needed before a command can be preloaded: the library, and a program whose loader obeys.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use memomania_layout::program::{inspect, Obstacle, Program, HEAD};

use crate::hand_over::in_path;

const LIBRARY: &str = "libmemomania.so";
/// The folder of the library, if it is none of the usual ones.
const FOLDER: &str = "MEGA_LIB_DIR";
/// Scripts whose interpreters are scripts: the kernel follows fewer.
const SCRIPTS: usize = 5;

/// Finds the library: in MEGA_LIB_DIR, else beside this program, else in ../lib.
pub fn library() -> Result<PathBuf> {
    let folders = match std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()) {
        Some(folder) => vec![PathBuf::from(folder)],
        None => {
            let exe = std::env::current_exe().context("cannot locate this program")?;
            let folder = exe.parent().unwrap_or(Path::new("/")).to_owned();
            vec![folder.clone(), folder.join("../lib")]
        }
    };
    let found = folders
        .iter()
        .map(|folder| folder.join(LIBRARY))
        .find(|path| path.is_file());
    let Some(found) = found else {
        let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        bail!(
            "{LIBRARY} is not in {}; build it (cargo build --release) or set {FOLDER}",
            folders.join(" or ")
        );
    };
    let path = found
        .canonicalize()
        .with_context(|| format!("cannot read {}", found.display()))?;
    let text = path.as_os_str().as_bytes();
    if text.iter().any(|byte| matches!(byte, b':' | b' ' | b'\n' | b'\t')) {
        bail!(
            "the loader cannot preload '{}': its path contains a colon or a space",
            path.display()
        );
    }
    match inspect(&head(&path)?) {
        // A library has no loader of its own, as a static program has none.
        Program::Dynamic { .. } | Program::Impossible(Obstacle::Static) => Ok(path),
        Program::Impossible(Obstacle::Architecture) => {
            bail!("{} is for a different architecture", path.display())
        }
        _ => bail!("{} is not a library", path.display()),
    }
}

/// Whether the program can be preloaded. What is not there, or of no kind that is known, is for the kernel to say.
pub fn check(name: &Path) -> Result<()> {
    match obstacle(name)? {
        Some((path, obstacle)) => bail!("impossible for {}: {obstacle}", path.display()),
        None => Ok(()),
    }
}

/// What `mega` is given before a static command, so that it becomes that command with the agent in it.
pub const BEGIN: [&str; 5] = ["run", "--agent-only", "--no-profiles", "--quiet", "--"];

/// Whether it is a program of this machine without a loader, and without rights that its caller has not.
pub fn is_static(name: &Path) -> bool {
    matches!(obstacle(name), Ok(Some((_, Obstacle::Static))))
}

/// Which program, of a script its interpreter, has no loader that would obey, and why; none: it has.
fn obstacle(name: &Path) -> Result<Option<(PathBuf, Obstacle)>> {
    let Some(mut path) = in_path(name.as_os_str()) else {
        return Ok(None);
    };
    for _ in 0..SCRIPTS {
        if let Some(why) = privileges(&path) {
            bail!("impossible for {}: {why}", path.display());
        }
        let Ok(head) = head(&path) else { return Ok(None) };
        match inspect(&head) {
            Program::Dynamic { .. } | Program::Unknown => return Ok(None),
            Program::Impossible(obstacle) => return Ok(Some((path, obstacle))),
            Program::Script { interpreter } => {
                let interpreter = Path::new(std::ffi::OsStr::from_bytes(interpreter)).to_owned();
                path = interpreter;
            }
        }
    }
    Ok(None)
}

/// Why the loader would not obey us: the program gets rights that its caller has not.
fn privileges(path: &Path) -> Option<&'static str> {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2010;
    let status = path.metadata().ok()?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let other_user = status.mode() & SET_USER != 0 && status.uid() != user;
    let other_group = status.mode() & SET_GROUP == SET_GROUP && status.gid() != group;
    if other_user || other_group {
        return Some("it is setuid or setgid, and the loader ignores LD_PRELOAD then");
    }
    let mut value = [0u8; 64];
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok();
    (has_capabilities && user != 0).then_some("it has file capabilities, and the loader ignores LD_PRELOAD then")
}

fn head(path: &Path) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    file.take(HEAD as u64)
        .read_to_end(&mut head)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(head)
}
