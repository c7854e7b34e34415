//! Where libmega_agent.so lies, and whether the command's user may load it from there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use mega_linux::sys::User;

/// The library.
pub const LIBRARY: &str = "libmega_agent.so";
/// Names the library itself.
pub const VARIABLE: &str = "MEGA_AGENT_LIBRARY";

/// Finds the library: the one that MEGA_AGENT_LIBRARY names, else what cargo built beside this program (target/agent), else beside it, else
/// in ../lib.
///
/// # Errors
/// It is not there, or the loader cannot be told its path.
pub fn find() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot locate this program")?;
    find_for(&exe, std::env::var_os(VARIABLE))
}

fn find_for(exe: &Path, named: Option<OsString>) -> Result<PathBuf> {
    let folder = exe.parent().unwrap_or(Path::new("/"));
    let places = match named.filter(|named| !named.is_empty()) {
        Some(named) => vec![PathBuf::from(named)],
        None => {
            let is_built = |name: &OsStr| name == "release" || name == "debug";
            let built = folder.file_name().filter(|name| is_built(name));
            let built = built.map(|_| folder.with_file_name("agent").join(LIBRARY));
            let others = [folder.join(LIBRARY), folder.with_file_name("lib").join(LIBRARY)];
            built.into_iter().chain(others).collect()
        }
    };
    let Some(found) = places.iter().find(|path| path.is_file()) else {
        let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
        bail!(
            "there is no {} (`make build` makes it, {VARIABLE} names it)",
            places.join(", no ")
        );
    };
    let path = found
        .canonicalize()
        .with_context(|| format!("cannot read {}", found.display()))?;
    // The loader's separators, and what it would replace.
    let text = path.as_os_str().as_bytes();
    if text
        .iter()
        .any(|byte| matches!(byte, b':' | b'$') || byte.is_ascii_whitespace())
    {
        bail!(
            "the loader cannot preload '{}': its path contains a colon, a space or a $",
            path.display()
        );
    }
    Ok(path)
}

/// Whether a user may read this file, by the modes of the file and of all folders above it.
///
/// # Errors
/// What it may not.
pub fn check_readable(path: &Path, user: &User) -> Result<()> {
    for place in path.ancestors() {
        let status = place
            .metadata()
            .with_context(|| format!("cannot look at {}", place.display()))?;
        let (needed, verb) = if status.is_dir() { (0o1, "enter") } else { (0o4, "read") };
        if !allows(&status, user, needed) {
            bail!("{} may not {verb} {}", user.name, place.display());
        }
    }
    Ok(())
}

fn allows(status: &std::fs::Metadata, user: &User, needed: u32) -> bool {
    let shift = if user.uid == 0 {
        return true;
    } else if status.uid() == user.uid {
        6
    } else if status.gid() == user.gid || user.groups.contains(&status.gid()) {
        3
    } else {
        0
    };
    (status.mode() >> shift) & needed == needed
}

/// The loader's list with the library at its end: what was there comes first (Memomania's functions, a sanitizer's runtime).
#[must_use]
pub fn appended(existing: Option<OsString>, library: &Path) -> OsString {
    match existing.filter(|existing| !existing.is_empty()) {
        Some(existing) if has_agent(&existing) => existing,
        Some(mut list) => {
            list.push(":");
            list.push(library);
            list
        }
        None => library.into(),
    }
}

/// Whether the loader's list has the agent.
#[must_use]
pub fn has_agent(list: &OsStr) -> bool {
    let parts = list.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    parts
        .map(|part| Path::new(OsStr::from_bytes(part)))
        .any(|path| path.file_name() == Some(OsStr::new(LIBRARY)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn touch(path: &Path) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        path.to_owned()
    }

    #[test]
    fn the_library_is_found_where_it_is_installed_and_where_it_is_built() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (installed, built) = (root.join("bin/mega"), root.join("release/mega"));
        let find = |exe: &Path| find_for(exe, None);
        let error = find(&installed).unwrap_err().to_string();
        assert!(
            error.contains("bin/libmega_agent.so, no ") && error.contains("lib/libmega_agent.so"),
            "{error}"
        );
        let in_lib = touch(&root.join("lib").join(LIBRARY));
        assert_eq!(find(&installed).unwrap(), in_lib);
        let beside = touch(&root.join("bin").join(LIBRARY));
        assert_eq!(find(&installed).unwrap(), beside);
        let agent = touch(&root.join("agent").join(LIBRARY));
        assert_eq!(find(&installed).unwrap(), beside);
        assert_eq!(find(&built).unwrap(), agent);
        assert_eq!(find_for(&built, Some(in_lib.clone().into())).unwrap(), in_lib);
        assert!(find_for(&built, Some("/nowhere".into())).is_err());
        let spaced = touch(&root.join("a b").join(LIBRARY));
        assert!(find_for(&built, Some(spaced.into())).is_err());
    }

    #[test]
    fn what_was_preloaded_stays_in_front_and_the_agent_is_there_once() {
        let library = Path::new("/lib/libmega_agent.so");
        assert_eq!(appended(None, library), "/lib/libmega_agent.so");
        assert_eq!(appended(Some("".into()), library), "/lib/libmega_agent.so");
        let both = appended(Some("/a/libasan.so /b.so".into()), library);
        assert_eq!(both, "/a/libasan.so /b.so:/lib/libmega_agent.so");
        assert_eq!(appended(Some(both.clone()), Path::new("/other/libmega_agent.so")), both);
    }

    #[test]
    fn a_user_needs_the_file_and_every_folder_above_it() {
        let root = tempfile::tempdir().unwrap();
        let path = touch(&root.path().join("in/lib.so"));
        let user = |uid| User {
            name: "ann".into(),
            uid,
            gid: 0xffff_fff0,
            groups: Vec::new(),
            home: "/".into(),
        };
        let stranger = user(0xffff_fff1);
        let set = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        set(root.path(), 0o711);
        set(&root.path().join("in"), 0o711);
        set(&path, 0o644);
        check_readable(&path, &stranger).unwrap();
        set(&path, 0o640);
        let error = check_readable(&path, &stranger).unwrap_err().to_string();
        assert!(error.starts_with("ann may not read "), "{error}");
        set(&path, 0o644);
        set(&root.path().join("in"), 0o700);
        assert!(check_readable(&path, &stranger).is_err());
        let owner = root.path().metadata().unwrap().uid();
        check_readable(&path, &user(owner)).unwrap();
    }
}
