//! Colours: told apart by lightness too, so that they read in print and with any kind of sight.

use serde::{Deserialize, Serialize};

/// Red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rgb(pub u8, pub u8, pub u8);

impl Rgb {
    /// The paper.
    pub const WHITE: Self = Self(255, 255, 255);
    /// Text.
    pub const INK: Self = Self(34, 34, 34);
    /// Text of lesser weight, axes.
    pub const GREY: Self = Self(110, 110, 110);
    /// Lines that guide the eye.
    pub const FAINT: Self = Self(214, 214, 214);

    /// As `#rrggbb`.
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }

    /// The way from this colour to the other, from 0 to 1.
    pub fn towards(self, other: Self, share: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
        Self(mix(self.0, other.0), mix(self.1, other.1), mix(self.2, other.2))
    }

    /// The nearest of a terminal's 256 colours: its cube of 6 × 6 × 6 or its 24 greys.
    pub fn terminal(self) -> u8 {
        const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
        let distance = |other: Self| {
            let part = |a: u8, b: u8| u32::from(a.abs_diff(b)).pow(2);
            part(self.0, other.0) + part(self.1, other.1) + part(self.2, other.2)
        };
        let nearest = |value: u8| {
            (0..6u8)
                .min_by_key(|&i| STEPS[usize::from(i)].abs_diff(value))
                .unwrap_or(0)
        };
        let (r, g, b) = (nearest(self.0), nearest(self.1), nearest(self.2));
        let cube = Self(STEPS[usize::from(r)], STEPS[usize::from(g)], STEPS[usize::from(b)]);
        let mean = (u32::from(self.0) + u32::from(self.1) + u32::from(self.2)) / 3;
        let grey = ((mean.saturating_sub(3)) / 10).min(23) as u8;
        let level = 8 + 10 * grey;
        if distance(Self(level, level, level)) < distance(cube) {
            232 + grey
        } else {
            16 + 36 * r + 6 * g + b
        }
    }
}

/// The mean of colours with their weights; none of nothing.
pub fn mean(colours: impl IntoIterator<Item = (Rgb, f64)>) -> Option<Rgb> {
    let mut sum = [0.0; 4];
    for (Rgb(r, g, b), weight) in colours {
        for (sum, part) in sum.iter_mut().zip([f64::from(r), f64::from(g), f64::from(b), 1.0]) {
            *sum += part * weight;
        }
    }
    let [r, g, b, weight] = sum;
    (weight > 0.0).then(|| {
        let part = |n: f64| (n / weight).round() as u8;
        Rgb(part(r), part(g), part(b))
    })
}

/// A scale from little to much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale(pub Rgb, pub Rgb);

impl Scale {
    /// The colour of a share.
    pub fn at(self, share: f64) -> Rgb {
        self.0.towards(self.1, share)
    }
}

/// The character of a share in plain text, from nothing to everything. Nothing but nothing is blank.
pub fn ramp(share: f64) -> char {
    const RAMP: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];
    if share <= 0.0 || share.is_nan() {
        return ' ';
    }
    RAMP[((share.min(1.0) * RAMP.len() as f64).ceil() as usize).clamp(1, RAMP.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_s_nearest_colours_are_found() {
        assert_eq!(Rgb(0, 0, 0).terminal(), 16);
        assert_eq!(Rgb(255, 255, 255).terminal(), 231);
        assert_eq!(Rgb(255, 0, 0).terminal(), 196);
        assert_eq!(Rgb(128, 128, 128).terminal(), 244);
    }

    #[test]
    fn a_scale_goes_from_end_to_end_and_no_further() {
        let scale = Scale(Rgb(0, 0, 0), Rgb(200, 100, 50));
        assert_eq!(
            (scale.at(-1.0), scale.at(0.5), scale.at(9.0)),
            (Rgb(0, 0, 0), Rgb(100, 50, 25), Rgb(200, 100, 50))
        );
        assert_eq!(
            mean([(Rgb(0, 0, 0), 1.0), (Rgb(200, 100, 50), 3.0)]),
            Some(Rgb(150, 75, 38))
        );
        assert_eq!(mean([]), None);
    }

    #[test]
    fn the_ramp_is_blank_only_for_nothing_and_full_only_for_all() {
        assert_eq!(
            (ramp(0.0), ramp(1e-9), ramp(0.5), ramp(0.88), ramp(1.0), ramp(7.0)),
            (' ', '.', '+', '%', '@', '@')
        );
        assert_eq!(ramp(f64::NAN), ' ');
    }
}
