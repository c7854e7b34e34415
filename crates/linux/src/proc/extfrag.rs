//! The debugfs files extfrag/unusable_index and extfrag/extfrag_index: by zone, one figure for every order.

use std::path::Path;

use super::{lines, read_bounded, ProcRoot, SMALL_BYTES};
use crate::error::Result;

/// One zone's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// Zone name: "DMA32", "Normal" ...
    pub name: String,
    /// By order. Of unusable_index from 0 to 1, of extfrag_index from -1 (a request would succeed) to 1.
    pub by_order: Vec<f64>,
}

/// Share of each zone's free memory that is of no use for an allocation of each order.
pub fn read_unusable(root: &ProcRoot) -> Result<Vec<Zone>> {
    read(root, "unusable_index")
}

/// The kernel's fragmentation index of each zone for each order.
pub fn read_index(root: &ProcRoot) -> Result<Vec<Zone>> {
    read(root, "extfrag_index")
}

fn read(root: &ProcRoot, name: &str) -> Result<Vec<Zone>> {
    let path = root.sys.join("kernel/debug/extfrag").join(name);
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// Reads the text of either file, "Node 0, zone   Normal 0.000 0.012 ..."; `path` is for messages only.
pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Zone>> {
    let text = String::from_utf8_lossy(text);
    let mut zones = Vec::new();
    for (at, line) in lines(path, &text) {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("Node") {
            return Err(at.wrong("node", "a line such as 'Node 0, zone Normal ...'", line));
        }
        let node = at.number("node", words.next().and_then(|word| word.strip_suffix(',')))?;
        let (Some("zone"), Some(name)) = (words.next(), words.next()) else {
            return Err(at.wrong("zone", "'zone' and a name", line));
        };
        let figure = |word: &str| match word.parse::<f64>() {
            Ok(figure) if figure.is_finite() => Ok(figure),
            _ => Err(at.wrong("index", "a figure such as 0.012", word)),
        };
        zones.push(Zone {
            node,
            name: name.to_owned(),
            by_order: words.map(figure).collect::<Result<_>>()?,
        });
    }
    Ok(zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_below_zero_are_read_and_what_is_none_is_named() {
        let zones = parse(
            Path::new("e"),
            b"Node 0, zone    DMA32 -1.000 -1.000 0.998 \nNode 1, zone Normal 0.5\n",
        )
        .unwrap();
        assert_eq!(zones[0].by_order, [-1.0, -1.0, 0.998]);
        assert_eq!((zones[1].node, zones[1].name.as_str()), (1, "Normal"));
        for bad in [
            "Node 0, zone Normal x",
            "Node 0, zone Normal NaN",
            "Node 0, Normal",
            "0",
        ] {
            assert!(parse(Path::new("e"), bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
