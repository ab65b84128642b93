//! Runs the scenarios against a driver, for those who write one:
//!
//! ```text
//! cargo run -p dlock-conformance -- python3 driver.py asyncio
//! cargo run -p dlock-conformance -- --only lost python3 driver.py asyncio
//! ```

use std::process::ExitCode;

use dlock_conformance::launch::Launch;
use dlock_conformance::run::run_level;
use dlock_conformance::scenario::Level;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let word = arguments.next_if_eq("--only").and_then(|_| arguments.next());
    let word = word.unwrap_or_default();
    let Some(program) = arguments.next() else {
        eprintln!("usage: dlock-conformance [--only WORD-IN-NAME] PROGRAM [ARGUMENT...]");
        return ExitCode::from(2);
    };
    let launch = arguments.fold(Launch::of(program), Launch::with);
    let mut failed = 0;
    for level in Level::ALL {
        println!("{level:?}");
        for verdict in run_level(level, |name| name.contains(&word), &launch) {
            let scenario = format!("{:4.1} s  {}", verdict.took.as_secs_f64(), verdict.scenario);
            match verdict.outcome {
                None => println!("  -       {scenario}: not for this driver"),
                Some(Ok(())) => println!("  ok      {scenario}"),
                Some(Err(error)) => {
                    println!("  FAILED  {scenario}: {error}");
                    failed += 1;
                }
            }
        }
    }
    println!("{failed} failed");
    ExitCode::from(u8::from(failed > 0))
}
