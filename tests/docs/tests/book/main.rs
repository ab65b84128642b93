//! The pages of the book say what is so: each code block is tried, each link leads somewhere, each picture is the
//! one that the program draws, and mdBook builds it all without a warning.

mod agree;
mod built;
mod links;
mod loading;
mod memory;
mod pages;
mod pictures;
mod programs;
mod settings;
mod shell;
mod support;
mod transcripts;
