//! x
pub mod checkers;
pub mod history;
