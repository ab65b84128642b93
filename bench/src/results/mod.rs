//! Results of a run: rows of figures, and the tables, the CSV file and the plots made from them.

pub mod page;
pub mod plot;
pub mod print;
pub mod progress;
pub mod report;
pub mod stats;
pub mod table;

/// The implementation that figures belong to by default, and that plots highlight.
pub const DLOCK: &str = "dlock";
