//! Why goals are missed: what is known of it, and what was tried (`missed.txt`).

const TEXT: &str = include_str!("missed.txt");

/// Which gates it is about, each with its paragraph.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let items = TEXT.split("\n\n").map(str::trim).filter(|item| !item.is_empty());
    items.filter_map(|item| Some((item.strip_prefix("- **")?.split_once("**")?.0, item)))
}

/// The paragraph about a gate.
#[must_use]
pub fn of(gate: &str) -> Option<&'static str> {
    all().find(|(name, _)| *name == gate).map(|(_, paragraph)| paragraph)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::auto::gates::gates;

    #[test]
    fn each_paragraph_is_about_a_gate() {
        let known: Vec<String> = gates(&[]).into_iter().map(|gate| gate.what).collect();
        let mut count = 0;
        for (name, _) in all() {
            assert!(known.iter().any(|gate| gate == name), "{name}");
            count += 1;
        }
        assert_eq!(count, TEXT.matches("- **").count());
        assert_eq!(of("nothing"), None);
    }
}
