//! What one scenario runs in: a server, its replica, and drivers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dlock_testkit::{Client, Rejection, Request, Server, wait_for};

use crate::driver::Driver;
use crate::launch::Launch;
use crate::outcome::{Outcome, within};
use crate::places::STARTS;
use crate::scenario::{FIRST_DRIVER, Scenario};
use crate::setting::is_synchronous;
use crate::usage::Usage;

const PATIENCE: Duration = Duration::from_secs(30);

/// The servers, networks and drivers of one scenario.
pub struct World {
    pub server: Server,
    replica: Option<Server>,
    pub drivers: BTreeMap<String, Driver>,
    names: BTreeMap<String, CommandId>,
    /// When locks were taken away by force: of this key, or of all.
    pub losses: Vec<(Instant, Option<String>)>,
    /// Losses that the scenario expects to be told.
    pub losses_told: BTreeSet<(String, u64)>,
    /// The requests whose replies are lost, as the last step says that has some lost.
    pub loses_replies_to: String,
    /// What drivers used, by name.
    pub usages: BTreeMap<String, Usage>,
}

/// A command: the driver, and its number there.
#[derive(Clone, Debug)]
pub struct CommandId {
    pub driver: String,
    pub id: u64,
}

impl World {
    /// Starts the server, then all drivers of a scenario, before anything in it is timed.
    pub fn start(scenario: &Scenario, launch: &Launch) -> Outcome<Self> {
        let is_synchronous = is_synchronous();
        let mut config = scenario.config.clone();
        if is_synchronous {
            config.push_str("\ndlock.min-sync-replicas 1");
        }
        let server = Server::with(&config);
        let has_replica = scenario.has_replica || is_synchronous;
        let replica = has_replica.then(|| server.replica_with(&config));
        if is_synchronous {
            let mut client = server.client();
            wait_for("a replica that is online", || {
                client
                    .server_info("replication", "slave0")
                    .contains("state=online")
            });
        }
        let mut drivers = BTreeMap::new();
        for name in scenario.drivers() {
            let _place = STARTS.take();
            let launch = if name == FIRST_DRIVER {
                launch
            } else {
                launch.other()
            };
            drivers.insert(name.to_owned(), Driver::start(launch, server.port())?);
        }
        Ok(Self {
            server,
            replica,
            drivers,
            names: BTreeMap::new(),
            losses: Vec::new(),
            losses_told: BTreeSet::new(),
            loses_replies_to: String::new(),
            usages: BTreeMap::new(),
        })
    }

    /// A client of the server that grants locks now.
    pub fn client(&self) -> Outcome<Client> {
        let client = Client::try_connect(&self.server.url());
        client.map_err(|error| format!("the server accepts no connection: {error}"))
    }

    pub fn driver(&mut self, name: &str) -> Outcome<&mut Driver> {
        self.drivers
            .get_mut(name)
            .ok_or_else(|| format!("no step is about the driver `{name}`"))
    }

    pub fn name(&mut self, name: String, command: CommandId) -> Outcome {
        match self.names.insert(name.clone(), command) {
            None => Ok(()),
            Some(_) => Err(format!("two commands have the name `{name}`")),
        }
    }

    /// Begins a part of the scenario: the one before has left neither names nor answers, even if it failed.
    pub fn begin_part(&mut self) {
        self.names.clear();
        for driver in self.drivers.values() {
            driver.proxy.reject(Rejection::default());
            driver.proxy.lose_replies_to("nothing", 0);
        }
    }

    pub fn named(&self, name: &str) -> Outcome<CommandId> {
        self.names
            .get(name)
            .cloned()
            .ok_or_else(|| format!("no command has the name `{name}`"))
    }

    /// The fence of a named grant.
    pub fn fence_of(&self, name: &str) -> Option<u64> {
        let command = self.names.get(name)?;
        let received = self.drivers.get(&command.driver)?.received();
        received.answers.get(&command.id)?.1["fence"].as_u64()
    }

    /// The primary hands over to its replica, and drivers find that from now on.
    pub fn fail_over(&mut self) -> Outcome {
        let replica = self.replica.take().ok_or("the scenario has no replica")?;
        let mut client = self.client()?;
        let command = format!("FAILOVER TO 127.0.0.1 {}", replica.port());
        // Refused until the replica has acknowledged something.
        within(PATIENCE, || {
            client.call(&command).map_err(|error| error.to_string())
        })?;
        wait_for("a promoted replica", || replica.is_primary());
        self.replica = Some(std::mem::replace(&mut self.server, replica));
        for driver in self.drivers.values() {
            driver.proxy.forward_to(self.server.port());
            driver.proxy.cut();
        }
        Ok(())
    }

    /// The requests of drivers that have reached a server, in the order of each driver.
    pub fn requests(&self) -> Vec<Request> {
        let drivers = self.drivers.values();
        drivers.flat_map(|driver| driver.proxy.recorded()).collect()
    }
}
