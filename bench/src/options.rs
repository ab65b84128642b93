//! The command line.

use std::fmt::Write;
use std::path::PathBuf;

use crate::Result;
use crate::workloads::Workload;

const USAGE: &str = "\
dlock-bench [--quick] [--check] [--only WORKLOAD]... [--servers DIR] [--out DIR]

  --quick          fewer rounds and cases, less than two minutes
  --check          exit with 1 if a target is missed
  --only WORKLOAD  run this workload only; can be repeated
  --servers DIR    servers downloaded by `tests/matrix/fetch-servers DIR`, for the workload `servers`
  --out DIR        where to write results.csv and the plots, default target/bench

environment
  DLOCK_SERVER   server program, default redis-server
  DLOCK_MODULE   module, default target/release/libdlock.so
  DLOCK_ETCD     etcd program, default etcd (Debian: etcd-server); skipped if not installed

workloads";

#[derive(Default)]
pub struct Options {
    pub quick: bool,
    pub check: bool,
    /// `None`: the workload `servers` is skipped.
    pub servers: Option<PathBuf>,
    /// `None`: `target/bench`.
    pub out: Option<PathBuf>,
    /// Names of workloads; empty for all.
    only: Vec<String>,
}

/// The help text, with the list of workloads.
pub fn usage(workloads: &[Workload]) -> String {
    workloads.iter().fold(USAGE.into(), |mut text, workload| {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {:<14} {}", workload.name, workload.about);
        text
    })
}

impl Options {
    /// `None`: help was requested.
    pub fn parse(args: impl IntoIterator<Item = String>, workloads: &[Workload]) -> Result<Option<Self>> {
        let mut options = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--check" => options.check = true,
                "--only" => {
                    let name = args.next().ok_or("--only needs the name of a workload")?;
                    if workloads.iter().all(|workload| workload.name != name) {
                        return Err(format!("unknown workload {name}\n{}", usage(workloads)).into());
                    }
                    options.only.push(name);
                }
                "--servers" => {
                    options.servers = Some(args.next().ok_or("--servers needs a directory")?.into());
                }
                "--out" => options.out = Some(args.next().ok_or("--out needs a directory")?.into()),
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {arg}\n{}", usage(workloads)).into()),
            }
        }
        Ok(Some(options))
    }

    pub fn selects(&self, workload: &Workload) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == workload.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOADS: [Workload; 2] = [
        Workload {
            name: "one",
            about: "the first",
            run: |_, _| Ok(()),
        },
        Workload {
            name: "two",
            about: "the second",
            run: |_, _| Ok(()),
        },
    ];

    fn selected(args: &[&str]) -> std::result::Result<Vec<&'static str>, String> {
        let args = args.iter().map(|arg| (*arg).to_owned());
        let options = Options::parse(args, &WORKLOADS).map_err(|error| error.to_string())?;
        let options = options.ok_or("help")?;
        let workloads = WORKLOADS.iter().filter(|workload| options.selects(workload));
        Ok(workloads.map(|workload| workload.name).collect())
    }

    #[test]
    fn only_option_selects_the_named_workloads() {
        assert_eq!(selected(&["--quick"]), Ok(vec!["one", "two"]));
        assert_eq!(selected(&["--only", "two"]), Ok(vec!["two"]));
        assert_eq!(
            selected(&["--only", "two", "--only", "one"]),
            Ok(vec!["one", "two"])
        );
    }

    #[test]
    fn only_option_with_unknown_workload_lists_the_known_ones() {
        let error = selected(&["--only", "three"]).err();
        assert!(
            error.is_some_and(|text| text.contains("unknown workload three") && text.contains("the second"))
        );
    }

    #[test]
    fn options_incomplete_or_unknown_are_errors() {
        assert!(
            selected(&["--only"]).is_err() && selected(&["--out"]).is_err() && selected(&["--fast"]).is_err()
        );
        assert_eq!(selected(&["--help"]), Err("help".into()));
    }
}
