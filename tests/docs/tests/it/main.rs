//! The pages of `docs/` are correct: every code block runs, and every link resolves.

mod config_blocks;
mod consistency;
mod layout;
mod links;
mod memory_table;
mod module_load_errors;
mod pages;
mod pictures;
mod programs;
mod readme;
mod shell_blocks;
mod support;
mod test_summary;
mod transcripts;
