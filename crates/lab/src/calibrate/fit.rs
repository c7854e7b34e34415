//! Fits a preset to a machine: what differs between machines with the same processor, by the pointer chase of
//! [`reach`](super::reach()).
//!
//! The TLB sizes are the processor's. Clock, share of the L3, memory latency and the host's page size are the machine's, and no host reports
//! them. Each is varied in turn to the value that predicts the chase best, until none improves. How much independent accesses hide of a
//! translation follows from the same accesses made independent.

use super::predict::{random, Prediction};
use super::Reach;
use mega_sim::tlb::{named, PageSize, Preset};

/// A machine's TLB.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// In the form that [`named`] parses.
    pub text: String,
    /// The preset that it means.
    pub preset: Preset,
    /// Mean distance of predicted and measured accesses: 0.1 is a tenth.
    pub error: f64,
    /// The largest.
    pub worst: f64,
}

/// Accesses of one prediction, after as many to warm up: the lines of 1 GB of base pages' tables come and go.
const ACCESSES: u64 = 150_000;
/// Below this all of it is in a core's own caches: nothing to fit.
const LEAST_BYTES: u64 = 8 << 20;
/// Factors to try for a figure.
const FACTORS: [f64; 4] = [0.75, 0.9, 1.1, 1.33];
/// Passes over all figures.
const PASSES: usize = 4;

#[derive(Clone)]
struct Figures {
    host: Option<&'static str>,
    l3: u32,
    l3_mb: u32,
    memory: u32,
}

/// What is varied, the most significant first.
const MOVED: [fn(&mut Figures) -> &mut u32; 3] = [|f| &mut f.memory, |f| &mut f.l3, |f| &mut f.l3_mb];

/// The processor `name`, fitted to the rows. In a virtual machine the host's page size is one of the figures.
///
/// # Errors
/// No such processor, or no rows to go by.
pub fn fit(name: &str, mhz: u32, virtual_machine: bool, rows: &[Reach]) -> Result<Fit, String> {
    fit_by(ACCESSES, name, mhz, virtual_machine, rows)
}

fn fit_by(accesses: u64, name: &str, mhz: u32, virtual_machine: bool, rows: &[Reach]) -> Result<Fit, String> {
    let start = named(name)?;
    let rows: Vec<&Reach> = rows
        .iter()
        .filter(|row| row.bytes >= LEAST_BYTES && row.as_asked)
        .collect();
    if rows.is_empty() {
        return Err("no rows to fit a TLB to: the kernel did not provide the requested pages".to_string());
    }
    let text = |f: &Figures| {
        let host = f.host.map(|host| format!(":host={host}")).unwrap_or_default();
        format!(
            "{name}:mhz={mhz}:l3={}:l3-mb={}:memory={}{host}",
            f.l3, f.l3_mb, f.memory
        )
    };
    let errors = |f: &Figures| -> Option<Vec<f64>> {
        let preset = named(&text(f)).ok()?;
        let off = |row: &&Reach| (predicted(&preset, row, accesses).ns() / row.ns[1]).ln().abs();
        Some(rows.iter().map(off).collect())
    };
    let mean = |f: &Figures| errors(f).map_or(f64::INFINITY, |all| all.iter().sum::<f64>() / all.len() as f64);
    let scaled = |cycles: u32| (f64::from(cycles) * f64::from(mhz) / f64::from(start.mhz)) as u32;
    let hosts: &[Option<&str>] = if virtual_machine {
        &[Some("4K"), Some("2M")]
    } else {
        &[None]
    };
    let mut best: Option<(f64, Figures)> = None;
    for host in hosts {
        let mut figures = Figures {
            host: *host,
            l3: scaled(start.caches[2].cycles),
            l3_mb: (start.caches[2].bytes >> 20) as u32,
            memory: scaled(start.memory_cycles),
        };
        let mut error = mean(&figures);
        for _ in 0..PASSES {
            let before = error;
            for figure in MOVED {
                for factor in FACTORS {
                    let mut other = figures.clone();
                    let value = figure(&mut other);
                    *value = (f64::from(*value) * factor).round().max(1.0) as u32;
                    let its = mean(&other);
                    if its < error {
                        (error, figures) = (its, other);
                    }
                }
            }
            if error > before * 0.99 {
                break;
            }
        }
        if best.as_ref().is_none_or(|(least, _)| error < *least) {
            best = Some((error, figures));
        }
    }
    let (error, figures) = best.ok_or("nothing to fit")?;
    let worst = errors(&figures).unwrap_or_default().into_iter().fold(0.0, f64::max);
    let mut text = text(&figures);
    let overlap = overlap_percent(&named(&text)?, &rows, accesses);
    text += &format!(":overlap={overlap}");
    Ok(Fit {
        preset: named(&text)?,
        text,
        error,
        worst,
    })
}

fn predicted(preset: &Preset, row: &Reach, accesses: u64) -> Prediction {
    random(preset, row.bytes, row.size, accesses)
}

/// Share of base pages' extra translation time that independent accesses wait for, in percent.
fn overlap_percent(preset: &Preset, rows: &[&Reach], accesses: u64) -> u32 {
    let (mut measured, mut modelled) = (0.0, 0.0);
    for base in rows.iter().filter(|row| row.size == PageSize::Base) {
        let Some(huge) = rows
            .iter()
            .find(|row| row.size == PageSize::Huge && row.bytes == base.bytes)
        else {
            continue;
        };
        measured += (base.overlapped_ns - huge.overlapped_ns).max(0.0);
        modelled += predicted(preset, base, accesses).translation_ns - predicted(preset, huge, accesses).translation_ns;
    }
    match modelled > 0.0 && measured > 0.0 {
        true => (100.0 * measured / modelled).round().clamp(1.0, 100.0) as u32,
        false => 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accesses of a prediction here.
    const FEW: u64 = 10_000;

    /// What a chase on this machine would have measured, half of a translation hidden.
    fn chase(text: &str) -> Vec<Reach> {
        let preset = named(text).unwrap();
        let row = |mb: u64, size| {
            let predicted = random(&preset, mb << 20, size, FEW);
            Reach {
                bytes: mb << 20,
                size,
                as_asked: true,
                ns: [predicted.ns(); 3],
                overlapped_ns: 10.0 + predicted.translation_ns / 2.0,
            }
        };
        [16, 128, 1024]
            .into_iter()
            .flat_map(|mb| [row(mb, PageSize::Base), row(mb, PageSize::Huge)])
            .collect()
    }

    #[test]
    fn a_machine_is_found_again() {
        for (virtual_machine, host) in [(true, "4K"), (true, "2M"), (false, "none")] {
            let rows = chase(&format!("zen4:mhz=3000:l3=45:l3-mb=24:memory=400:host={host}"));
            let fit = fit_by(FEW, "zen4", 3000, virtual_machine, &rows).unwrap();
            assert!(fit.error < 0.05 && fit.worst < 0.2, "{fit:?}");
            assert_eq!(
                fit.preset.nested.map(|n| n.host),
                named(&format!("zen4:host={host}")).unwrap().nested.map(|n| n.host)
            );
            assert!((40..=60).contains(&fit.preset.overlap_percent), "{}", fit.text);
        }
    }

    #[test]
    fn without_rows_nothing_is_said() {
        assert!(fit("zen4", 3000, true, &[]).is_err() && fit("atari", 3000, true, &chase("zen4")).is_err());
    }
}
