//! The size, the style and the elements of an SVG file.

/// In pixels.
pub const WIDTH: f64 = 1920.0;
pub const MARGIN: f64 = 54.0;

/// The viewer chooses the font.
pub const STYLE: &str = "text { font: 26px sans-serif; dominant-baseline: central } \
.title { font-size: 42px; font-weight: bold } .bold { font-weight: bold } \
.grey { fill: #5a5a5a } .small { font-size: 21px } .center { text-anchor: middle } .right { text-anchor: end } \
line { stroke-width: 3 } .thin { stroke: #d8dce0; stroke-width: 2 } .range { stroke: #282828 } \
polyline { fill: none; stroke-width: 3 } .dlock { stroke-width: 7 }";

/// `classes` of [`STYLE`].
pub fn text(x: f64, y: f64, classes: &str, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{classes}\">{text}</text>\n")
}

pub fn line(x1: f64, y1: f64, x2: f64, y2: f64, attributes: &str) -> String {
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {attributes}/>\n")
}

pub fn circle(x: f64, y: f64, radius: u8, color: &str) -> String {
    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{color}\"/>\n")
}

/// A colour of the `index`th implementation, from the colour-blind safe palette of Okabe and Ito.
pub fn color(index: usize) -> &'static str {
    const COLORS: [&str; 8] = [
        "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#787878", "#967800",
    ];
    COLORS[index % COLORS.len()]
}
