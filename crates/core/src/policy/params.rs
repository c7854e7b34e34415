//! Policy parameters: named, typed, bounded, documented, and settable from text, all from one definition.

use std::time::Duration;

use crate::units::{parse_duration, Bytes, Share, UnitError};

/// One parameter, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Name for `--set name=value`.
    pub name: &'static str,
    /// The current value.
    pub value: String,
    /// The default.
    pub default: String,
    /// Its meaning, and the paper's name for it.
    pub meaning: &'static str,
}

/// Why a parameter cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// The policy has no such parameter.
    #[error("policy '{policy}' has no parameter '{name}' (it has: {known})")]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// The name asked for.
        name: String,
        /// The known names.
        known: String,
    },
    /// The text is not a valid value.
    #[error("parameter '{name}': {source}")]
    Unreadable {
        /// The parameter.
        name: &'static str,
        /// What is wrong with the text.
        source: UnitError,
    },
    /// The values contradict each other.
    #[error("parameters of '{policy}': {rule}")]
    Inconsistent {
        /// The policy.
        policy: &'static str,
        /// The rule that they break.
        rule: &'static str,
    },
}

impl ParamError {
    /// The error for a policy that has only the parameters `known`.
    #[must_use]
    pub fn unknown(policy: &'static str, name: &str, known: &[&str]) -> Self {
        Self::Unknown {
            policy,
            name: name.chars().take(64).collect(),
            known: match known {
                [] => "none".to_string(),
                known => known.join(", "),
            },
        }
    }
}

/// A type of parameter.
pub trait ParamValue: Sized {
    /// Reads a value as written by people.
    fn read(text: &str) -> Result<Self, UnitError>;
    /// Writes a value so that it can be read back.
    fn show(&self) -> String;
}

impl ParamValue for Share {
    fn read(text: &str) -> Result<Self, UnitError> {
        text.parse()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl ParamValue for bool {
    fn read(text: &str) -> Result<Self, UnitError> {
        match text {
            "on" | "true" => Ok(true),
            "off" | "false" => Ok(false),
            _ => Err(UnitError::new(text, "'on' or 'off'")),
        }
    }
    fn show(&self) -> String {
        if *self { "on" } else { "off" }.to_string()
    }
}

impl ParamValue for Bytes {
    fn read(text: &str) -> Result<Self, UnitError> {
        text.parse()
    }
    fn show(&self) -> String {
        match self.0 {
            n if n > 0 && n % (1 << 30) == 0 => format!("{}G", n >> 30),
            n if n > 0 && n % (1 << 20) == 0 => format!("{}M", n >> 20),
            n => n.to_string(),
        }
    }
}

impl ParamValue for Duration {
    fn read(text: &str) -> Result<Self, UnitError> {
        parse_duration(text)
            .ok()
            .filter(|time| *time >= Duration::from_millis(10))
            .ok_or_else(|| UnitError::new(text, "a time from 10ms on, such as 500ms, 5s or 2m"))
    }
    fn show(&self) -> String {
        let ms = self.as_millis();
        if ms % 1000 == 0 {
            format!("{}s", ms / 1000)
        } else {
            format!("{ms}ms")
        }
    }
}

/// A number from `LOW` to `HIGH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count<const LOW: u32, const HIGH: u32>(pub u32);

impl<const LOW: u32, const HIGH: u32> ParamValue for Count<LOW, HIGH> {
    fn read(text: &str) -> Result<Self, UnitError> {
        text.parse()
            .ok()
            .filter(|n| (LOW..=HIGH).contains(n))
            .map(Self)
            .ok_or_else(|| UnitError::new(text, range_text(LOW, HIGH)))
    }
    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// The ranges in use as texts: an error's text is static, so that it stays cheap and comparable.
fn range_text(low: u32, high: u32) -> &'static str {
    match (low, high) {
        (1, 32) => "a number from 1 to 32",
        (1, 512) => "a number from 1 to 512",
        (1, 100_000_000) => "a number from 1 to 100000000",
        (1, 1000) => "a number from 1 to 1000",
        (1, 1_000_000) => "a number from 1 to 1000000",
        (0, 511) => "a number from 0 to 511",
        _ => "a number in range",
    }
}

/// Defines a policy's parameters once: the struct, its defaults, `set` and `list`.
macro_rules! parameters {
    (
        $(#[$outer:meta])*
        pub struct $name:ident for $policy:literal {
            $( $field:ident : $type:ty = $default:expr, $meaning:literal; )+
        }
    ) => {
        $(#[$outer])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $( #[doc = $meaning] pub $field: $type, )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )+ }
            }
        }

        impl $name {
            /// Sets one parameter from text.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::policy::ParamError> {
                use $crate::policy::params::ParamValue;
                match name {
                    $( stringify!($field) => {
                        self.$field = <$type>::read(value).map_err(|source| {
                            $crate::policy::ParamError::Unreadable { name: stringify!($field), source }
                        })?;
                        Ok(())
                    } )+
                    _ => Err($crate::policy::ParamError::unknown($policy, name, &[$( stringify!($field) ),+])),
                }
            }

            /// All parameters with their values and meanings.
            pub fn list(&self) -> Vec<$crate::policy::Param> {
                use $crate::policy::params::ParamValue;
                let defaults = Self::default();
                vec![ $( $crate::policy::Param {
                    name: stringify!($field),
                    value: self.$field.show(),
                    default: defaults.$field.show(),
                    meaning: $meaning,
                } ),+ ]
            }
        }
    };
}
pub(crate) use parameters;

/// In the `impl` of a policy or planner whose field `params` was made by [`parameters!`]: `set` and `params`, by that field.
macro_rules! hand_on_parameters {
    () => {
        fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::policy::ParamError> {
            self.params.set(name, value)
        }

        fn params(&self) -> Vec<$crate::policy::Param> {
            self.params.list()
        }
    };
}
pub(crate) use hand_on_parameters;
