//! What was measured: rows of figures, and the tables, files and plots that are made of them.

pub mod plot;
pub mod print;
pub mod progress;
pub mod report;
pub mod spread;
pub mod table;
