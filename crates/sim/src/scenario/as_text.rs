//! Quantities as written in a configuration: `"16G"`, `"5s"`, `"90%"`.

use std::time::Duration;

use mega_core::units::{parse_duration, Bytes, Share};
use serde::{Deserialize, Deserializer, Serializer};

/// A quantity whose text reads back unchanged.
pub trait Text: Sized {
    /// Writes it.
    fn show(&self) -> String;
    /// Reads it; the error says what is expected.
    fn read(text: &str) -> Result<Self, String>;
}

impl Text for Bytes {
    fn show(&self) -> String {
        match self.0 {
            n if n > 0 && n % (1 << 30) == 0 => format!("{}G", n >> 30),
            n if n > 0 && n % (1 << 20) == 0 => format!("{}M", n >> 20),
            n => n.to_string(),
        }
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse::<Self>().map_err(|e| e.to_string())
    }
}

impl Text for Duration {
    fn show(&self) -> String {
        match self.as_nanos() {
            n if n % 1_000_000_000 == 0 => format!("{}s", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => format!("{}ms", n / 1_000_000),
            n => format!("{}us", n / 1000),
        }
    }

    fn read(text: &str) -> Result<Self, String> {
        parse_duration(text).map_err(|e| e.to_string())
    }
}

impl Text for Share {
    fn show(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse::<Self>().map_err(|e| e.to_string())
    }
}

/// For `#[serde(with)]`.
pub fn serialize<T: Text, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&value.show())
}

/// For `#[serde(with)]`.
pub fn deserialize<'de, T: Text, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    T::read(&text).map_err(serde::de::Error::custom)
}

/// The same for an optional quantity.
pub mod optional {
    use super::{Deserialize, Deserializer, Serializer, Text};

    /// For `#[serde(with)]`.
    pub fn serialize<T: Text, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(&value.show()),
            None => to.serialize_none(),
        }
    }

    /// For `#[serde(with)]`.
    pub fn deserialize<'de, T: Text, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| T::read(&text).map_err(serde::de::Error::custom))
            .transpose()
    }
}
