//! Scenarios side by side: most of their time passes with waiting.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::aftermath;
use crate::launch::Launch;
use crate::outcome::Outcome;
use crate::pattern::difference;
use crate::scenario::{Level, Scenario};
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

/// How many scenarios may start now, in this process.
static FREE_PLACES: LazyLock<Mutex<usize>> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    Mutex::new(PLACES_PER_CORE * cores)
});
static PLACE_FREED: Condvar = Condvar::new();
const PLACES_PER_CORE: usize = 16;

fn run_in_turn(scenario: &Scenario, launch: &Launch) -> Verdict {
    let _place = Place::take();
    let start = Instant::now();
    // What the kit shares with other tests panics.
    let outcome = catch_unwind(AssertUnwindSafe(|| run_scenario(scenario, launch)));
    Verdict {
        scenario: scenario.name.clone(),
        outcome: outcome.unwrap_or_else(|panic| Some(Err(text(&*panic)))),
        took: start.elapsed(),
    }
}

/// One of the scenarios that run. Another one may start when it is dropped.
struct Place;

impl Place {
    fn take() -> Self {
        let free = FREE_PLACES.lock().expect("no thread panics while it holds this");
        let free = PLACE_FREED.wait_while(free, |free| *free == 0);
        *free.expect("no thread panics while it holds this") -= 1;
        Self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *FREE_PLACES.lock().expect("no thread panics while it holds this") += 1;
        PLACE_FREED.notify_one();
    }
}

fn run_scenario(scenario: &Scenario, launch: &Launch) -> Option<Outcome> {
    let run = || {
        let mut world = World::new(scenario, launch)?;
        if scenario.only_for != Value::Null {
            let hello = world.driver("a")?.hello()?;
            if difference(&scenario.only_for, &hello, &|_| None).is_some() {
                return Ok(false);
            }
        }
        for (n, step) in scenario.steps.iter().enumerate() {
            steps::run(&mut world, step).map_err(|error| format!("step {}, {step}: {error}", n + 1))?;
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

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "the kit panicked".into())
}
