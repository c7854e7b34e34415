//! The papers' Redis workloads, at the papers' own sizes.

use super::RedisOptions;

impl RedisOptions {
    /// The names that [`Self::of_paper`] knows.
    pub const PAPERS: [&'static str; 8] = [
        "mega-set",
        "mega-hset",
        "mega-big",
        "lrbhps-cold",
        "lrbhps-warm",
        "lrbhps-del-50",
        "lrbhps-del-70",
        "lrbhps-range-xl",
    ];

    /// A workload of a paper by its name, at its real size:
    ///
    /// * `mega-set`: MEGA, Tables 1 and 2: 2 million sets of 4 KB.
    /// * `mega-hset`: MEGA, Table 3: 2 million hset of 4 KB, 6 GB of them removed at random, then everything read.
    /// * `mega-big`: MEGA, Tables 9 and 10: 40,000 sets of 2 MB.
    /// * `lrbhps-cold`, `-warm`: LRBHPS, Tables 2 and 3: 1 million of 4 KB; then get and set 5:5, as many again.
    /// * `lrbhps-del-50`, `-70`: LRBHPS, Table 4: 1.4 million of 8 KB, a share of them deleted at random.
    /// * `lrbhps-range-xl`: LRBHPS, Table 4: 20,000 of 256 B to 1 MB.
    ///
    /// Range-S (5 million of 256 B to 16 KB) is left out: drawn uniformly it needs four times the memory that the paper reports
    /// (9.4 to 9.7 GB), so the sizes were drawn otherwise there.
    #[must_use]
    pub fn of_paper(name: &str) -> Option<Self> {
        let of = |keys, bytes| Self {
            keys,
            least_bytes: bytes,
            most_bytes: bytes,
            ..Self::default()
        };
        let deleted = |delete_share| Self {
            delete_share,
            rest_ns: 60_000_000_000,
            ..of(1_400_000, 8192)
        };
        Some(match name {
            "mega-set" => of(2_000_000, 4096),
            "mega-hset" => Self {
                hash: true,
                delete_share: (6u64 << 30) as f64 / (2_000_000.0 * 4096.0),
                read_all: true,
                ..of(2_000_000, 4096)
            },
            "mega-big" => of(40_000, 2 << 20),
            "lrbhps-cold" => of(1_000_000, 4096),
            "lrbhps-warm" => Self {
                requests: Some(1_000_000),
                ..of(1_000_000, 4096)
            },
            "lrbhps-del-50" => deleted(0.5),
            "lrbhps-del-70" => deleted(0.7),
            "lrbhps-range-xl" => Self {
                least_bytes: 256,
                ..of(20_000, 1 << 20)
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Redis;
    use super::*;

    #[test]
    fn every_name_has_options_that_make_sense() {
        for name in RedisOptions::PAPERS {
            let o = RedisOptions::of_paper(name).unwrap();
            Redis::new(o).unwrap();
            // What is stored fits the papers' machines: 16 GB, and 256 GB for the big one.
            let bytes = o.keys * (o.least_bytes + o.most_bytes) / 2;
            assert!(bytes < if name == "mega-big" { 128 << 30 } else { 14 << 30 }, "{name}");
        }
        assert_eq!(RedisOptions::of_paper("mega"), None);
    }
}
