//! `mega-pages FOLDER` writes man pages and shell completions of `mega` and `mega-lab`, for their packages.
//!
//! ```text
//!   FOLDER/mega/man/mega-run.1  FOLDER/mega/bash/mega  FOLDER/mega/zsh/_mega  FOLDER/mega/fish/mega.fish  (mega-lab: the same)
//! ```
//!
//! Options come from the commands' own definitions, what else a page says from `sections/`. A crate of its own, so that nothing of this is
//! in the program that runs as root.

mod page;
mod sections;
#[cfg(test)]
mod tests;

/// The command line of `mega`.
#[allow(dead_code, unused_imports)]
#[path = "../../mega/src/args/mod.rs"]
mod mega;

/// The command line of `mega-lab`.
#[allow(dead_code, unused_imports)]
#[path = "../../lab/src/bin/mega-lab/args/mod.rs"]
mod lab;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;

/// Both commands, with the names that their subcommands get by them.
fn commands() -> [Command; 2] {
    [mega::Cli::command(), lab::Cli::command()].map(|mut command| {
        command.build();
        command
    })
}

/// Writes everything.
fn write(folder: &Path) -> Result<()> {
    for mut command in commands() {
        let name = command.get_name().to_owned();
        let folder = folder.join(&name);
        for (shell, sub) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
            let folder = made(folder.join(sub))?;
            let path = clap_complete::generate_to(shell, &mut command, &name, &folder)
                .with_context(|| format!("cannot write to {}", folder.display()))?;
            // Debian's and Fedora's folders for bash want the command's bare name.
            if shell == Shell::Bash {
                fs::rename(&path, folder.join(&name)).with_context(|| format!("cannot rename {}", path.display()))?;
            }
        }
        let folder = made(folder.join("man"))?;
        for (name, text) in page::pages(&command)? {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

fn made(folder: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).context("usage: mega-pages FOLDER")?;
    write(Path::new(&folder))
}
