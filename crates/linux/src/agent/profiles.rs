//! What was learned of programs, kept for their next runs: a file for each, named by the program's build ID, so that another build begins
//! with nothing known. Files are replaced as a whole, and one that is damaged is none.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use mega_core::range::density::{Density, DENSE_REGIONS};
use mega_core::range::profile;

use crate::error::{Error, Result};

/// Programs that are kept; of more, those that ran last.
const MOST: usize = 1024;

/// A program: the first eight bytes of its build ID, as the agent has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program(
    /// As a number.
    pub u64,
);

impl fmt::Display for Program {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .to_le_bytes()
            .iter()
            .try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

impl Program {
    fn of(name: &str) -> Option<Self> {
        let program = Self(u64::from_str_radix(name, 16).ok()?.swap_bytes());
        (program.to_string() == name).then_some(program)
    }
}

/// What a run has shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// The program's name.
    pub name: String,
    /// How densely it filled its memory.
    pub density: Density,
    /// The most that one process had resident.
    pub resident: u64,
}

impl Shown {
    /// Adds what another process of the program has shown.
    pub fn add(&mut self, other: &Shown) {
        let own = self.density;
        self.density = Density {
            dense: own.dense.saturating_add(other.density.dense),
            sparse: own.sparse.saturating_add(other.density.sparse),
            holes: own.holes.saturating_add(other.density.holes),
        };
        self.resident = self.resident.max(other.resident);
        self.name.clone_from(&other.name);
    }

    fn is_enough(&self) -> bool {
        self.density.dense.saturating_add(self.density.sparse) >= DENSE_REGIONS
    }
}

/// What is kept of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Which program.
    pub program: Program,
    /// What its runs have shown: the last one all, those before it for 32 regions together.
    pub shown: Shown,
    /// How many runs that were.
    pub runs: u64,
    /// When it was kept last, in seconds since 1970.
    pub used: u64,
}

impl Profile {
    fn read(program: Program, file: &[u8]) -> Option<Self> {
        let mut kept = Self {
            program,
            shown: Shown {
                density: profile::density(file)?,
                ..Shown::default()
            },
            runs: 0,
            used: 0,
        };
        for (word, value) in profile::lines(file)? {
            match word {
                b"name" => kept.shown.name = String::from_utf8_lossy(value).into_owned(),
                b"resident" => kept.shown.resident = profile::number(value)?,
                b"runs" => kept.runs = profile::number(value)?,
                b"used" => kept.used = profile::number(value)?,
                _ => {}
            }
        }
        Some(kept)
    }

    fn to_file(&self) -> Vec<u8> {
        let density = self.shown.density;
        // A name may hold anything.
        let name: String = self.shown.name.chars().filter(|c| !c.is_control()).collect();
        let mut file = profile::HEADER.to_vec();
        let lines = [
            ("dense", density.dense.to_string()),
            ("sparse", density.sparse.to_string()),
            ("holes", density.holes.to_string()),
            ("resident", self.shown.resident.to_string()),
            ("runs", self.runs.to_string()),
            ("used", self.used.to_string()),
            ("name", name),
        ];
        for (word, value) in lines {
            file.extend(format!("\n{word} {value}").bytes());
        }
        file.push(b'\n');
        file
    }

    /// Takes in a run.
    fn learn(&mut self, run: &Shown, now: u64) {
        self.shown.density = self.shown.density.as_prior();
        self.shown.resident = 0;
        self.shown.add(run);
        self.runs = self.runs.saturating_add(1);
        self.used = now;
    }
}

/// The folder.
#[derive(Debug, Clone)]
pub struct Profiles {
    folder: PathBuf,
}

impl Profiles {
    /// The one in this folder, which need not be there yet.
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, program: Program) -> PathBuf {
        self.folder.join(program.to_string())
    }

    /// Of one program; none where there is none, or a damaged one.
    fn get(&self, program: Program) -> Option<Profile> {
        let path = self.path(program);
        let metadata = fs::symlink_metadata(&path).ok()?;
        let is_one = metadata.is_file() && metadata.len() <= profile::MOST_BYTES as u64;
        Profile::read(program, &fs::read(path).ok().filter(|_| is_one)?)
    }

    fn programs(&self) -> Result<Vec<Program>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&self.folder, "read", error)),
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter_map(|name| Program::of(&name)).collect())
    }

    /// All of them, those that ran last first, and how many are damaged.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<(Vec<Profile>, usize)> {
        let programs = self.programs()?;
        let mut profiles: Vec<_> = programs.iter().filter_map(|program| self.get(*program)).collect();
        profiles.sort_by_key(|profile| (std::cmp::Reverse(profile.used), profile.program));
        let damaged = programs.len() - profiles.len();
        Ok((profiles, damaged))
    }

    /// Takes in what the programs of one run have shown.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn learn(&self, shown: &BTreeMap<Program, Shown>) -> Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        let of = |(program, run): (&Program, &Shown)| {
            let mut profile = self.get(*program).unwrap_or(Profile {
                program: *program,
                shown: Shown::default(),
                runs: 0,
                used: 0,
            });
            profile.learn(run, now);
            profile
        };
        let learned: Vec<_> = shown.iter().filter(|(_, run)| run.is_enough()).map(of).collect();
        if learned.is_empty() {
            return Ok(());
        }
        let written = || -> std::io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            for profile in &learned {
                let new = self.folder.join(format!(".{}.{}", profile.program, std::process::id()));
                // Left by one that was killed; whatever lies there, nothing is written through it.
                let _ = fs::remove_file(&new);
                fs::File::create_new(&new)?.write_all(&profile.to_file())?;
                fs::rename(&new, self.path(profile.program))?;
            }
            Ok(())
        };
        written().map_err(|error| Error::io(&self.folder, "write to", error))?;
        let (all, _) = self.list()?;
        self.forget(all.iter().skip(MOST).map(|profile| profile.program))
            .map(drop)
    }

    /// Removes these; says how many there were.
    ///
    /// # Errors
    /// One cannot be removed.
    pub fn forget(&self, programs: impl IntoIterator<Item = Program>) -> Result<usize> {
        let mut count = 0;
        for program in programs {
            let path = self.path(program);
            match fs::remove_file(&path) {
                Ok(()) => count += 1,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io(&path, "remove", error)),
            }
        }
        Ok(count)
    }

    /// Removes all, damaged ones too; says how many there were.
    ///
    /// # Errors
    /// The folder cannot be read, or a file in it not be removed.
    pub fn forget_all(&self) -> Result<usize> {
        self.forget(self.programs()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(dense: u32, sparse: u32) -> Shown {
        Shown {
            name: "redis-server".to_owned(),
            density: Density {
                dense,
                sparse,
                holes: sparse * 400,
            },
            resident: 1 << 30,
        }
    }

    fn profiles() -> (tempfile::TempDir, Profiles) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/profiles");
        (parent, Profiles { folder })
    }

    const A: Program = Program(0x0807_0605_0403_0201);
    const B: Program = Program(7);

    #[test]
    fn what_a_run_has_shown_is_kept_and_counts_for_32_regions_beside_the_next_one() {
        let (_parent, profiles) = profiles();
        assert_eq!(profiles.list().unwrap(), (vec![], 0));
        profiles
            .learn(&BTreeMap::from([(A, shown(100, 4)), (B, shown(3, 0))]))
            .unwrap();
        let (list, _) = profiles.list().unwrap();
        assert_eq!(list.len(), 1, "too little was seen of the other one: {list:?}");
        assert_eq!((&list[0].shown, list[0].runs), (&shown(100, 4), 1));
        assert!(profiles.folder().join("0102030405060708").is_file());
        profiles.learn(&BTreeMap::from([(A, shown(0, 50))])).unwrap();
        let (list, _) = profiles.list().unwrap();
        let density = list[0].shown.density;
        assert_eq!((density.dense, density.sparse, list[0].runs), (32, 52, 2));
        assert_eq!(profiles.forget([A, B]).unwrap(), 1);
        assert_eq!(profiles.list().unwrap().0, []);
    }

    #[test]
    fn what_is_kept_can_be_read_by_the_agent_whatever_the_name_and_however_often() {
        let (_parent, profiles) = profiles();
        let mut run = shown(u32::MAX, u32::MAX);
        run.name = "a\nb \u{1b}[2J".repeat(3);
        run.density.holes = u32::MAX;
        for _ in 0..70 {
            profiles.learn(&BTreeMap::from([(A, run.clone())])).unwrap();
            let file = fs::read(profiles.path(A)).unwrap();
            assert!(profile::density(&file).is_some(), "{}", String::from_utf8_lossy(&file));
            run.density = Density {
                dense: 16,
                sparse: 0,
                holes: 1,
            };
        }
        assert_eq!(profiles.list().unwrap().0[0].runs, 70);
    }

    #[test]
    fn damaged_files_are_counted_replaced_and_forgotten_and_others_are_left_alone() {
        let (_parent, profiles) = profiles();
        profiles.learn(&BTreeMap::from([(A, shown(100, 0))])).unwrap();
        fs::write(profiles.path(B), "mega-profile 1\ndense").unwrap();
        fs::write(profiles.folder().join("notes"), "mine").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", profiles.path(Program(9))).unwrap();
        let (list, damaged) = profiles.list().unwrap();
        assert_eq!((list.len(), damaged), (1, 2));
        profiles.learn(&BTreeMap::from([(B, shown(20, 0))])).unwrap();
        assert_eq!(profiles.list().unwrap().1, 1);
        assert_eq!(profiles.forget_all().unwrap(), 3);
        let left: Vec<_> = fs::read_dir(profiles.folder()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn of_too_many_those_that_ran_last_are_kept() {
        let (_parent, profiles) = profiles();
        let many: BTreeMap<_, _> = (0..MOST as u64 + 20).map(|n| (Program(n + 1), shown(20, 0))).collect();
        profiles.learn(&many).unwrap();
        assert_eq!(profiles.list().unwrap().0.len(), MOST);
    }
}
