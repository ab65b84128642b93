//! As much of SVG as the pictures need. Colours follow the reader's light or dark mode, and each picture has a
//! ground of its own, so that it can be read on any page.

use std::fmt::{Display, Write as _};

/// Colours are named by what they stand for. Text of a class has its colour without the ground.
const STYLE: &str = "\
  text { font: 15px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2430 }
  .small { font-size: 13px } .bold { font-weight: 600 } .soft { fill: #5b6472 } .light { fill: #ffffff }
  .ground { fill: #fafbfc; stroke: #d5d9e0 } .box { fill: #ffffff; stroke: #8791a1; stroke-width: 1.5 }
  .arrow { fill: none; stroke: #5b6472; stroke-width: 1.8; marker-end: url(#tip) } .tip { fill: #5b6472 }
  .axis { fill: none; stroke: #b3bac5; stroke-width: 1 } .dashed { stroke-dasharray: 5 5 }
  .alice { fill: #2563c9 } .bob { fill: #b45309 } .carol { fill: #6d43bd } .dave { fill: #0f766e }
  .grace { fill: #cfd5de } .server { fill: #7b8696 } .bad { fill: #c81e3a } .good { fill: #15803d }
  .cross { fill: none; stroke: #c81e3a; stroke-width: 3 }
  .overlap { fill: #c81e3a; fill-opacity: .13; stroke: #c81e3a; stroke-dasharray: 4 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e8ef } .soft { fill: #a3adbb } .light { fill: #ffffff }
    .ground { fill: #171b22; stroke: #343b47 } .box { fill: #212732; stroke: #6b7686 }
    .arrow { stroke: #a3adbb } .tip { fill: #a3adbb } .axis { stroke: #4a5260 }
    .alice { fill: #3f7ce0 } .bob { fill: #c2660f } .carol { fill: #8760d3 } .dave { fill: #16877d }
    .grace { fill: #414a58 } .server { fill: #667182 } .bad { fill: #f0637c } .good { fill: #4cc07a }
    .cross { stroke: #f0637c }
    .overlap { fill: #f0637c; fill-opacity: .18; stroke: #f0637c }
  }
";

/// A picture under construction.
pub struct Svg {
    width: u32,
    height: u32,
    title: &'static str,
    body: String,
}

/// Where a text begins, from its point of view.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// At the point.
    Start,
    /// Half of it before the point.
    Middle,
}

impl Svg {
    /// A picture of that size, in units of a pixel. The title is for those who cannot see it.
    pub fn new(width: u32, height: u32, title: &'static str) -> Self {
        Self {
            width,
            height,
            title,
            body: String::new(),
        }
    }

    fn add(&mut self, element: impl Display) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.body, "  {element}");
    }

    /// A rectangle with round corners.
    pub fn rect(&mut self, class: &str, [x, y, width, height]: [i32; 4], radius: i32) {
        self.add(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>"#
        ));
    }

    /// A line of text.
    pub fn text(&mut self, class: &str, anchor: Anchor, [x, y]: [i32; 2], text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
        };
        self.add(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// A line, by the language of SVG's paths.
    pub fn path(&mut self, class: &str, path: &str) {
        self.add(format_args!(r#"<path class="{class}" d="{path}"/>"#));
    }

    /// A rectangle in the colour of somebody, with words in its middle.
    pub fn pill(&mut self, class: &str, place: [i32; 4], text: &str) {
        let [x, y, width, height] = place;
        self.rect(class, place, height.min(40) / 2);
        self.text(
            "light bold",
            Anchor::Middle,
            [x + width / 2, y + height / 2 + 5],
            text,
        );
    }

    /// The whole file.
    pub fn render(&self) -> String {
        let Self {
            width,
            height,
            title,
            body,
        } = self;
        let (inner_width, inner_height) = (width - 2, height - 2);
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
  <title>{title}</title>
  <style>
{STYLE}  </style>
  <marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class="tip" d="M0 0 L10 5 L0 10 z"/></marker>
  <rect class="ground" x="1" y="1" width="{inner_width}" height="{inner_height}" rx="14"/>
{body}</svg>
"#
        )
    }
}
