//! The command line.

use crate::Result;

pub const USAGE: &str = "\
dlock-bench [--quick] [--check]

  --quick   fewer rounds: a first look in about a minute
  --check   exit code 1 when a target is missed

environment
  DLOCK_SERVER   the server program, default redis-server
  DLOCK_MODULE   the module, default target/release/libdlock.so";

pub struct Options {
    pub cpu_rounds: usize,
    pub sweep_rounds: usize,
    pub waiting_rounds: usize,
    pub check: bool,
}

impl Options {
    /// `None`: help was asked for.
    pub fn from_args() -> Result<Option<Self>> {
        let mut options = Self {
            cpu_rounds: 7,
            sweep_rounds: 5,
            waiting_rounds: 5,
            check: false,
        };
        for arg in std::env::args().skip(1) {
            match arg.as_str() {
                "--quick" => {
                    (options.cpu_rounds, options.sweep_rounds, options.waiting_rounds) = (3, 1, 1);
                }
                "--check" => options.check = true,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {arg}\n{USAGE}").into()),
            }
        }
        Ok(Some(options))
    }
}
