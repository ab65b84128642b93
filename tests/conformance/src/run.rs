//! Scenarios side by side.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::aftermath;
use crate::launch::Launch;
use crate::outcome::Outcome;
use crate::pattern::difference;
use crate::places::SCENARIOS;
use crate::scenario::{Level, Part, Scenario};
use crate::steps;
use crate::world::World;

/// How a scenario ended for a driver.
pub struct Verdict {
    pub scenario: String,
    /// `None` if the scenario is not for this driver.
    pub outcome: Option<Outcome>,
    pub took: Duration,
}

/// Runs the scenarios of a level whose names are chosen.
pub fn run_level(level: Level, is_chosen: impl Fn(&str) -> bool, launch: &Launch) -> Vec<Verdict> {
    let scenarios = level.scenarios().into_iter();
    let scenarios: Vec<Scenario> = scenarios.filter(|scenario| is_chosen(&scenario.name)).collect();
    thread::scope(|scope| {
        let running: Vec<_> = scenarios
            .iter()
            .map(|scenario| scope.spawn(|| run_in_turn(scenario, launch)))
            .collect();
        let verdicts = running
            .into_iter()
            .map(|running| running.join().expect("it catches panics"));
        verdicts.collect()
    })
}

fn run_in_turn(scenario: &Scenario, launch: &Launch) -> Verdict {
    let _place = SCENARIOS.take();
    let start = Instant::now();
    // What the kit shares with other tests panics.
    let outcome = catch_unwind(AssertUnwindSafe(|| run_scenario(scenario, launch)));
    Verdict {
        scenario: scenario.name.clone(),
        outcome: outcome.unwrap_or_else(|panic| Some(Err(text(&*panic)))),
        took: start.elapsed(),
    }
}

fn run_scenario(scenario: &Scenario, launch: &Launch) -> Option<Outcome> {
    let run = || {
        let mut world = World::start(scenario, launch)?;
        let hello = &world.driver("a")?.hello;
        if difference(&scenario.only_for, hello, &|_| None).is_some() {
            return Ok(false);
        }
        let parts = scenario.parts.iter();
        let failures: Vec<String> = parts
            .filter_map(|part| run_part(&mut world, part).err())
            .collect();
        if !failures.is_empty() {
            return Err(failures.join("\n    "));
        }
        aftermath::check(&mut world).map_err(|error| format!("afterwards: {error}"))?;
        Ok(true)
    };
    match run() {
        Ok(true) => Some(Ok(())),
        Ok(false) => None,
        Err(error) => Some(Err(error)),
    }
}

fn run_part(world: &mut World, part: &Part) -> Outcome {
    world.begin_part();
    for (n, step) in part.steps.iter().enumerate() {
        let done = steps::run(world, step);
        done.map_err(|error| {
            format!("{} step {}, {step}: {error}", part.name, n + 1)
                .trim_start()
                .to_owned()
        })?;
    }
    Ok(())
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "the kit panicked".into())
}
