//! The pages of the book say what is so: each code block is tried, each link leads somewhere, each picture is the
//! one that the program draws.

mod support;

mod links;
mod pages;
mod programs;
mod transcripts;
