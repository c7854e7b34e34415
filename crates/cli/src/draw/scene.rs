//! A picture as rectangles and texts, in pixels from the top left corner. Texts are of fixed width, so that both kinds of file look alike.

use serde::{Deserialize, Serialize};

use super::colour::Rgb;

/// How large a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Size {
    /// Labels: 6 × 10 pixels a character.
    Small,
    /// Headings: 9 × 15, bold.
    Large,
}

impl Size {
    /// Width of one character.
    #[must_use]
    pub fn advance(self) -> i32 {
        match self {
            Self::Small => 6,
            Self::Large => 9,
        }
    }

    /// Height of a line.
    #[must_use]
    pub fn height(self) -> i32 {
        match self {
            Self::Small => 10,
            Self::Large => 15,
        }
    }
}

/// One part of a picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// A filled rectangle.
    Rect {
        /// Left edge.
        x: i32,
        /// Upper edge.
        y: i32,
        /// Width.
        w: i32,
        /// Height.
        h: i32,
        /// Its colour.
        fill: Rgb,
    },
    /// A text; `x` and `y` are its top left corner.
    Text {
        /// Left edge.
        x: i32,
        /// Upper edge.
        y: i32,
        /// How large.
        size: Size,
        /// Its colour.
        fill: Rgb,
        /// What it says.
        text: String,
    },
}

/// A picture.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Scene {
    /// Width in pixels.
    pub width: i32,
    /// Height in pixels.
    pub height: i32,
    /// Its parts; later ones lie over earlier ones.
    pub items: Vec<Item>,
}

impl Scene {
    /// An empty one; it grows downwards with what is put in.
    #[must_use]
    pub fn new(width: i32) -> Self {
        Self {
            width,
            height: 0,
            items: Vec::new(),
        }
    }

    /// Adds a rectangle; joins it to the last one where it only continues that to the right.
    pub fn rect(&mut self, x: i32, y: i32, w: i32, h: i32, fill: Rgb) {
        if w <= 0 || h <= 0 {
            return;
        }
        self.height = self.height.max(y + h);
        if let Some(Item::Rect {
            x: lx,
            y: ly,
            w: lw,
            h: lh,
            fill: last,
        }) = self.items.last_mut()
        {
            if *last == fill && (*ly, *lh) == (y, h) && *lx + *lw == x {
                *lw += w;
                return;
            }
        }
        self.items.push(Item::Rect { x, y, w, h, fill });
    }

    /// Adds a text from `x` on.
    pub fn text(&mut self, x: i32, y: i32, size: Size, fill: Rgb, text: impl Into<String>) {
        self.height = self.height.max(y + size.height());
        self.items.push(Item::Text {
            x,
            y,
            size,
            fill,
            text: text.into(),
        });
    }

    /// Adds a small text that ends at `x`.
    pub fn text_left_of(&mut self, x: i32, y: i32, fill: Rgb, text: impl Into<String>) {
        let text = text.into();
        let width = text.chars().count() as i32 * Size::Small.advance();
        self.text(x - width, y, Size::Small, fill, text);
    }

    /// Adds a vertical line of dashes.
    pub fn dashes_down(&mut self, x: i32, y: i32, h: i32, fill: Rgb) {
        for at in (y..y + h).step_by(6) {
            self.rect(x, at, 1, 3.min(y + h - at), fill);
        }
    }

    /// Adds a horizontal bar that shows a scale, with what its ends mean; answers where it ends.
    pub fn scale_bar(&mut self, x: i32, y: i32, scale: super::colour::Scale, low: &str, high: &str) -> i32 {
        let advance = Size::Small.advance();
        self.text(x, y, Size::Small, Rgb::GREY, low);
        let from = x + (low.chars().count() as i32 + 1) * advance;
        const STEPS: i32 = 40;
        for i in 0..STEPS {
            let fill = scale.at(f64::from(i) / f64::from(STEPS - 1));
            self.rect(from + 2 * i, y, 2, 10, fill);
        }
        let to = from + 2 * STEPS + advance;
        self.text(to, y, Size::Small, Rgb::GREY, high);
        to + high.chars().count() as i32 * advance
    }
}
