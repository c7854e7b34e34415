//! All programs by name, as a configuration writes them: `{"program": "gups", "mib": 4096}`.

use super::*;
use crate::workload::redis::{Redis, RedisOptions};
use serde::{Deserialize, Serialize};

macro_rules! catalogue {
    ($($variant:ident $name:literal $options:ident $program:ident,)*) => {
        /// A program with its options.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "program", rename_all = "kebab-case")]
        pub enum Spec {
            $(#[doc = concat!("`", $name, "`: see [`", stringify!($program), "`].")] $variant($options),)*
        }

        /// The names of all programs.
        pub const NAMES: &[&str] = &[$($name),*];

        impl Spec {
            /// The program of this name with its default options.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant($options::default())),)*
                    _ => None,
                }
            }

            /// The program's name.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            /// The program, ready to run on a memory of this kind.
            ///
            /// # Errors
            /// Invalid options.
            pub fn build<M: Memory + 'static>(&self) -> Result<Box<dyn Program<M>>, ProgramError> {
                Ok(match self {
                    $(Self::$variant(options) => Box::new($program::new(*options)?),)*
                })
            }
        }
    };
}

catalogue! {
    Gups "gups" GupsOptions Gups,
    Touch "touch" TouchOptions Touch,
    Stride "stride" StrideOptions Stride,
    Chunks "chunks" ChunksOptions Chunks,
    Churn "churn" ChurnOptions Churn,
    Holes "holes" HolesOptions Holes,
    Sizes "sizes" SizesOptions Sizes,
    Sparse "sparse" SparseOptions Sparse,
    Dense "dense" DenseOptions Dense,
    Compute "compute" ComputeOptions Compute,
    Store "store" StoreOptions Store,
    Kv "kv" KvOptions Kv,
    Btree "btree" BtreeOptions Btree,
    Graph "graph" GraphOptions PageRank,
    Turnover "turnover" TurnoverOptions Turnover,
    Heap "heap" HeapOptions Heap,
    Shards "shards" ShardsOptions Shards,
    Hog "hog" HogOptions Hog,
    Redis "redis" RedisOptions Redis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_program_that_reads_back_from_its_own_options() {
        for name in NAMES {
            let spec = Spec::named(name).unwrap();
            let text = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
            assert_eq!(spec.build::<CountingMemory>().unwrap().name(), *name);
            assert_eq!(spec.name(), *name);
        }
        assert!(Spec::named("gusp").is_none());
    }

    #[test]
    fn options_not_given_are_the_default_and_unknown_ones_are_refused() {
        let spec: Spec = serde_json::from_str(r#"{"program": "gups", "mib": 7}"#).unwrap();
        assert_eq!(
            spec,
            Spec::Gups(GupsOptions {
                mib: 7,
                ..GupsOptions::default()
            })
        );
        assert!(serde_json::from_str::<Spec>(r#"{"program": "gups", "mob": 7}"#).is_err());
        assert!(serde_json::from_str::<Spec>(r#"{"program": "gusp"}"#).is_err());
    }
}
