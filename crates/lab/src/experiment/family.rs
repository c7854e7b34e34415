//! Families of experiments: many programs compared in the same way, each an experiment of its own, run by one command.

use super::{auto, programs, Experiment};
use crate::result::Record;

/// A family.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name on the command line. The members' names begin with it and a dash.
    pub name: &'static str,
    /// Its members, in their order.
    pub members: &'static [Experiment],
    /// Whether it runs under all conditions by default, not only on an unfragmented machine.
    pub all_conditions: bool,
    /// The document that is made from its records.
    pub document: fn(&[Record]) -> String,
    /// The picture in it (SVG), `docs/NAME.svg`.
    pub picture: fn(&[Record]) -> String,
}

const ALL: [Family; 2] = [
    Family {
        name: "auto",
        members: auto::LIST,
        all_conditions: true,
        document: auto::table::document,
        picture: auto::table::picture,
    },
    Family {
        name: "programs",
        members: programs::LIST,
        all_conditions: false,
        document: programs::document,
        picture: programs::picture,
    },
];

/// The family of this name.
#[must_use]
pub fn find(name: &str) -> Option<Family> {
    ALL.into_iter().find(|family| family.name == name)
}

impl Family {
    /// A member's own name: that of its program.
    #[must_use]
    pub fn own_name(self, member: &'static Experiment) -> &'static str {
        let rest = member.name.strip_prefix(self.name);
        rest.and_then(|rest| rest.strip_prefix('-')).unwrap_or(member.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_judged_by_its_own_first_figure_and_named_by_its_program() {
        for family in ALL {
            assert!(family.members.len() >= 12);
            for member in family.members {
                let plan = member.setup(0.01).plan;
                let own = plan.cases[0].program.metrics();
                assert!(own.iter().any(|metric| metric.name == plan.main[0]), "{}", member.name);
                assert_eq!(family.own_name(member), plan.cases[0].name);
                let variants: Vec<String> = plan.variants.iter().map(ToString::to_string).collect();
                for needed in ["base", "thp-always", "mthp-64k", "mega", "thp-always+trim", "auto"] {
                    assert!(variants.iter().any(|v| v == needed), "{}: {needed}", member.name);
                }
            }
        }
        assert!(find("auto").is_some() && find("gups").is_none());
    }
}
