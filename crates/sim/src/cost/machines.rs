//! The papers' machines, with the figures that the papers give. The rest is the development machine's.

use super::Costs;

/// When the default's figures were measured.
pub(super) const DATE: &str = "2026-11-21";

/// The names that [`preset`] knows.
#[must_use]
pub const fn names() -> [&'static str; 6] {
    ["development", "mega", "mega-server", "ingens", "lrbhps", "study"]
}

/// The costs of a machine by its name: `development`, or a paper's.
#[must_use]
pub fn preset(name: &str) -> Option<Costs> {
    let mut costs = Costs::default();
    let about = match name {
        "development" => return Some(costs),
        "mega" | "mega-server" => {
            // Table 2, Linux 4.16.8 with KPTI: base pages only, mean 0.888 µs over 2.7 M faults; with huge pages the 99th percentile, 118 µs, is
            // a huge fault. The server's faults are not given: the laptop's.
            costs.set_faults(888, 118_232);
            if name == "mega" {
                "MEGA: Intel i7 at 2.3 GHz, 16 GB of DDR3"
            } else {
                "MEGA: Xeon E5-2650 v4, 256 GB"
            }
        }
        "ingens" => {
            // The poster: 3.6 µs for 4 KB and 378 µs for 2 MB.
            costs.set_faults(3_600, 378_000);
            "Ingens' poster; the machine is not said"
        }
        "lrbhps" => {
            // Table 1, system time for 2 GB written: 0.2184 s zeroed 4 KB at a time and 0.1896 s in bulk, over 1024 huge pages.
            costs.zero_huge_ns = 213_300 - costs.fault_entry_ns;
            costs.zero_huge_bulk_ns = 185_200 - costs.fault_entry_ns;
            costs.zero_base_ns = costs.zero_huge_ns / 512;
            "LRBHPS: Ryzen 5 3600X, 16 GB of DDR4"
        }
        "study" => {
            // 11,489 huge pages allocated in the kernel after a compaction: mean 2.7 µs, nothing zeroed. That is the default already.
            costs.allocate_block_ns = 2_700;
            "the allocation-latency study: 32 GB; the processor is not said"
        }
        _ => return None,
    };
    // Unknown for a processor without virtualization, so it is not counted.
    costs.set_accessed_ns = 0;
    costs.set_accessed_believed_ns = 0;
    costs.machine = about.into();
    costs.kernel = match name {
        "mega" | "mega-server" => "4.16.8",
        "ingens" => "4.3",
        "lrbhps" => "6.1.38",
        _ => "not said",
    }
    .into();
    costs.date = "as published; other figures of the development machine".into();
    Some(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_makes_sense_and_no_other_is_known() {
        for name in names() {
            assert_eq!(preset(name).map(|costs| costs.check()), Some(Ok(())), "{name}");
        }
        assert_eq!(preset("atari"), None);
    }

    #[test]
    fn the_published_faults_come_out_again() {
        let near = |got: u64, published: u64| got.abs_diff(published) * 100 <= published;
        let mega = preset("mega").unwrap();
        assert!(near(mega.base_fault_ns(), 888) && near(mega.huge_fault_ns(), 118_232));
        let ingens = preset("ingens").unwrap();
        assert!(near(ingens.base_fault_ns(), 3_600) && near(ingens.huge_fault_ns(), 378_000));
        let lrbhps = preset("lrbhps").unwrap();
        assert!(near(lrbhps.huge_fault_ns() * 1024, 218_400_000));
        assert!(near(
            (lrbhps.fault_entry_ns + lrbhps.zero_huge_bulk_ns) * 1024,
            189_600_000
        ));
    }
}
